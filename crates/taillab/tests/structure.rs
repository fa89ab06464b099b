//! The shape of the source: no circular modules, crates only of crates below them, no type name with many meanings.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

/// The most types that may share a name.
const MOST_NAMESAKES: usize = 3;

#[test]
fn no_module_depends_on_itself_through_others() {
    let mut circles = Vec::new();
    for source in crate_sources() {
        circles.extend(Modules::read(&source).circles());
    }
    assert!(
        circles.is_empty(),
        "these files use each other in a circle:\n{}",
        circles.join("\n")
    );
}

/// A command only turns flags into arguments for shared code. If one uses another, shared code is hidden in it.
#[test]
fn no_command_names_another() {
    let source = crates_folder().join("taillab/src");
    let commands = source.join("commands");
    let command = |file: &Path| {
        let below = file.strip_prefix(&commands).ok()?;
        let first = below.components().next()?.as_os_str().to_owned();
        Some(PathBuf::from(first).with_extension(""))
    };
    let modules = Modules::read(&source);
    let uses = modules.uses();
    assert!(
        uses.keys().filter_map(|file| command(file)).count() > 35,
        "the commands were not found"
    );
    let mut named = Vec::new();
    for (user, used) in &uses {
        for used in used {
            let (of_user, of_used) = (command(user), command(used));
            if of_user.is_some() && of_used.is_some() && of_user != of_used {
                named.push(format!("{} uses {}", shown(user), shown(used)));
            }
        }
    }
    assert!(
        named.is_empty(),
        "these commands name each other; what they share belongs outside `commands`:\n{}",
        named.join("\n")
    );
}

/// From the ground up: a crate uses only crates of lines above its own.
const LAYERS: [&[&str]; 5] = [
    &["model"],
    &["queueing"],
    &["host", "probe", "load", "simulator", "analysis", "report"],
    &["console"],
    &["experiment"],
];

/// What uses the libraries: instruments, `testkit` and the program. No instrument uses another, nothing but the
/// program uses one, and nothing uses `testkit`.
#[test]
fn a_crate_uses_only_crates_below_it() {
    let crates = manifests();
    let layer_of = |name: &str| LAYERS.iter().position(|layer| layer.contains(&name));
    let mut wrong = Vec::new();
    for (name, manifest) in &crates {
        let is_program = name == "taillab";
        let own = layer_of(name).unwrap_or(LAYERS.len());
        for used in dependencies(manifest) {
            let is_below =
                layer_of(&used).map_or(is_program && used != "testkit", |layer| layer < own);
            if !is_below {
                wrong.push(format!("{name} uses {used}"));
            }
        }
    }
    assert!(
        crates.len() > LAYERS.concat().len(),
        "the crates were not found"
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The manifest of each crate with the name of its folder.
fn manifests() -> Vec<(String, String)> {
    let manifests = crate_sources().into_iter().filter_map(|source| {
        let folder = source.parent()?.to_owned();
        let name = folder.file_name()?.to_str()?.to_owned();
        Some((name, read(&folder.join("Cargo.toml"))))
    });
    manifests.collect()
}

/// Our crates that a manifest names, except those of its tests.
fn dependencies(manifest: &str) -> Vec<String> {
    let lines = manifest
        .lines()
        .skip_while(|line| *line != "[dependencies]");
    let lines = lines.skip(1).take_while(|line| !line.starts_with('['));
    let names = lines.filter_map(|line| line.strip_prefix("taillab-"));
    let ends = |character: char| !character.is_ascii_alphanumeric();
    names
        .filter_map(|name| name.split(ends).next())
        .map(str::to_owned)
        .collect()
}

/// A name that many types share says little about each of them.
#[test]
fn a_type_name_means_few_things() {
    let mut types = Types::default();
    for path in files_without_tests() {
        types.visit_file(&parse(&path));
    }
    assert!(types.by_name.len() > 500, "the types were not found");
    let common: Vec<String> = (types.by_name.iter())
        .filter(|(_, times)| **times > MOST_NAMESAKES)
        .map(|(name, times)| format!("{name}: {times} types"))
        .collect();
    assert!(
        common.is_empty(),
        "more than {MOST_NAMESAKES} types have these names; give each a name of its own:\n{}",
        common.join("\n")
    );
}

#[test]
fn only_code_for_tests_is_left_out() {
    let is_left_out = |attribute: &str| {
        let module: syn::ItemMod = syn::parse_str(&format!("{attribute} mod module {{}}")).unwrap();
        is_for_tests(&module.attrs)
    };
    assert!(is_left_out("#[cfg(test)]"));
    for other in ["", "#[cfg(not(test))]", "#[cfg(feature = \"latest\")]"] {
        assert!(!is_left_out(other), "{other}");
    }
}

fn crates_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the crate lies in `crates`")
        .to_owned()
}

/// The `src` of every crate.
fn crate_sources() -> Vec<PathBuf> {
    let folders = [crates_folder(), crates_folder().join("instruments")];
    let entries = folders.iter().flat_map(|folder| {
        let entries = fs::read_dir(folder).expect("a folder of crates can be read");
        entries.map(|entry| entry.expect("an entry").path().join("src"))
    });
    let mut sources: Vec<_> = entries.filter(|source| source.is_dir()).collect();
    sources.sort();
    assert!(sources.len() > 5, "the crates were not found");
    sources
}

/// What a user is shown is judged first: only the tool's own proof may have what nobody judged.
#[test]
fn no_result_is_made_without_a_judge() {
    let makes = |file: &PathBuf| read(file).contains(".unjudged()");
    let found: Vec<String> = files_without_tests()
        .filter(makes)
        .map(|file| shown(&file))
        .collect();
    assert!(
        found.iter().all(|file| file.contains("testkit/")) && !found.is_empty(),
        "{found:?}"
    );
}

/// The sources of all crates, except files of tests.
fn files_without_tests() -> impl Iterator<Item = PathBuf> {
    let files = crate_sources()
        .into_iter()
        .flat_map(|source| rust_files(&source));
    files.filter(|path| {
        !(path.components())
            .any(|part| part.as_os_str() == "tests.rs" || part.as_os_str() == "tests")
    })
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of sources can be read") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn parse(path: &Path) -> syn::File {
    syn::parse_file(&read(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn shown(path: &Path) -> String {
    path.strip_prefix(crates_folder())
        .unwrap_or(path)
        .display()
        .to_string()
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || (attribute.path().is_ident("cfg")
                && matches!(&attribute.meta, syn::Meta::List(list) if list.tokens.to_string() == "test"))
    })
}

/// How many types have each name; associated types do not count.
#[derive(Default)]
struct Types {
    by_name: BTreeMap<String, usize>,
}

impl Types {
    fn note(&mut self, name: &syn::Ident) {
        *self.by_name.entry(name.to_string()).or_default() += 1;
    }
}

impl<'ast> Visit<'ast> for Types {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.note(&item.ident);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.note(&item.ident);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.note(&item.ident);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.note(&item.ident);
    }
}

/// Segments below the root of the crate: `crate::a::b` is `["a", "b"]`.
type ModulePath = Vec<String>;

/// The modules of one crate, and what each defines, imports and mentions, without what is only for tests.
#[derive(Default)]
struct Modules {
    scopes: BTreeMap<ModulePath, Scope>,
    /// Module → the file that holds it.
    files: HashMap<ModulePath, PathBuf>,
}

#[derive(Default)]
struct Scope {
    defined: BTreeSet<String>,
    /// Name here → where it comes from.
    imported: HashMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    mentioned: BTreeSet<Vec<String>>,
}

impl Modules {
    fn read(source: &Path) -> Self {
        let mut modules = Self::default();
        for root in ["lib.rs", "main.rs"] {
            let path = source.join(root);
            if path.exists() {
                modules.add_file(source, &path, Vec::new());
            }
        }
        modules
    }

    fn add_file(&mut self, source: &Path, path: &Path, module: ModulePath) {
        let file = parse(path);
        self.add_items(source, path, module, file.items);
    }

    fn add_items(&mut self, source: &Path, path: &Path, module: ModulePath, items: Vec<syn::Item>) {
        let mut scope = Scope::default();
        for item in items {
            if is_for_tests(attributes_of(&item)) {
                continue;
            }
            match item {
                syn::Item::Mod(inner) => {
                    let mut below = module.clone();
                    below.push(inner.ident.to_string());
                    if let Some((_, items)) = inner.content {
                        self.add_items(source, path, below, items);
                    } else {
                        let folder = below
                            .iter()
                            .fold(source.to_owned(), |folder, name| folder.join(name));
                        let alone = folder.with_extension("rs");
                        let path = if alone.exists() {
                            alone
                        } else {
                            folder.join("mod.rs")
                        };
                        self.add_file(source, &path, below);
                    }
                }
                item => scope.add(&item),
            }
        }
        self.files.insert(module.clone(), path.to_owned());
        self.scopes.insert(module, scope);
    }

    /// The module that defines what `path` names in the module `from`; none if another crate defines it.
    fn resolve(&self, from: &ModulePath, path: &[String], depth: usize) -> Option<ModulePath> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => return self.resolve_below(&Vec::new(), rest, depth),
            "self" => return self.resolve_below(from, rest, depth),
            "super" => {
                let parent = from[..from.len().checked_sub(1)?].to_vec();
                return if rest.first().is_some_and(|next| next == "super") {
                    self.resolve(&parent, rest, depth)
                } else {
                    self.resolve_below(&parent, rest, depth)
                };
            }
            _ => {}
        }
        self.resolve_below(from, path, depth)
    }

    fn resolve_below(
        &self,
        module: &ModulePath,
        path: &[String],
        depth: usize,
    ) -> Option<ModulePath> {
        let scope = self.scopes.get(module)?;
        let (first, rest) = path.split_first()?;
        if depth > 20 {
            return None;
        }
        let mut below = module.clone();
        below.push(first.clone());
        if self.scopes.contains_key(&below) {
            return self.resolve_below(&below, rest, depth + 1);
        }
        if scope.defined.contains(first) {
            return Some(module.clone());
        }
        if let Some(origin) = scope.imported.get(first) {
            let whole: Vec<String> = origin.iter().chain(rest).cloned().collect();
            return if whole == path {
                None
            } else {
                self.resolve(module, &whole, depth + 1)
            };
        }
        scope.globs.iter().find_map(|glob| {
            let whole: Vec<String> = glob.iter().chain(path).cloned().collect();
            self.resolve(module, &whole, depth + 1)
        })
    }

    /// File → the files whose items it names, except those of the modules above it: a module may both use
    /// its children and hold what they share.
    fn uses(&self) -> BTreeMap<&Path, BTreeSet<&Path>> {
        let mut uses: BTreeMap<&Path, BTreeSet<&Path>> = BTreeMap::new();
        for (module, scope) in &self.scopes {
            let user = self.files[module].as_path();
            let targets = uses.entry(user).or_default();
            // a re-export alone does not count as a use
            for path in &scope.mentioned {
                if let Some(target) = self.resolve(module, path, 0) {
                    let used = self.files[&target].as_path();
                    let is_above = module.starts_with(&target);
                    if used != user && !is_above {
                        targets.insert(used);
                    }
                }
            }
        }
        uses
    }

    /// Each strongly connected set of files and the uses within it, as text.
    fn circles(&self) -> Vec<String> {
        let uses = self.uses();
        let reach: BTreeMap<&Path, BTreeSet<&Path>> = uses
            .keys()
            .map(|file| (*file, reachable(&uses, file)))
            .collect();
        let mut seen = BTreeSet::new();
        let mut circles = Vec::new();
        for file in uses
            .keys()
            .copied()
            .filter(|file| reach[file].contains(file))
        {
            let members: BTreeSet<&Path> = reach[file]
                .iter()
                .copied()
                .filter(|other| reach[other].contains(file))
                .collect();
            if seen.insert(members.clone()) {
                let mut text = format!("a circle of {} files:", members.len());
                for user in &members {
                    for used in uses[user].intersection(&members) {
                        text += &format!("\n    {} uses {}", shown(user), shown(used));
                    }
                }
                circles.push(text);
            }
        }
        circles
    }
}

fn reachable<'a>(
    uses: &BTreeMap<&'a Path, BTreeSet<&'a Path>>,
    from: &'a Path,
) -> BTreeSet<&'a Path> {
    let mut found = BTreeSet::new();
    let mut next = vec![from];
    while let Some(file) = next.pop() {
        for used in uses.get(file).into_iter().flatten() {
            if found.insert(*used) {
                next.push(used);
            }
        }
    }
    found
}

fn attributes_of(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

impl Scope {
    fn add(&mut self, item: &syn::Item) {
        match item {
            syn::Item::Const(item) => self.define(&item.ident),
            syn::Item::Enum(item) => self.define(&item.ident),
            syn::Item::Fn(item) => self.define(&item.sig.ident),
            syn::Item::Static(item) => self.define(&item.ident),
            syn::Item::Struct(item) => self.define(&item.ident),
            syn::Item::Trait(item) => self.define(&item.ident),
            syn::Item::Type(item) => self.define(&item.ident),
            syn::Item::Union(item) => self.define(&item.ident),
            syn::Item::Use(item) => {
                let is_re_export = !matches!(item.vis, syn::Visibility::Inherited);
                self.import(&item.tree, &mut Vec::new(), is_re_export);
                return;
            }
            _ => {}
        }
        Mentions(&mut self.mentioned).visit_item(item);
    }

    fn define(&mut self, name: &syn::Ident) {
        self.defined.insert(name.to_string());
    }

    fn import(&mut self, tree: &syn::UseTree, prefix: &mut Vec<String>, is_re_export: bool) {
        let (name, last) = match tree {
            syn::UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.import(&path.tree, prefix, is_re_export);
                prefix.pop();
                return;
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, prefix, is_re_export);
                }
                return;
            }
            syn::UseTree::Glob(_) => return self.globs.push(prefix.clone()),
            syn::UseTree::Name(name) => (name.ident.to_string(), name.ident.to_string()),
            syn::UseTree::Rename(rename) => (rename.rename.to_string(), rename.ident.to_string()),
        };
        let mut whole = prefix.clone();
        let name = if last == "self" {
            prefix.last().cloned().unwrap_or(name)
        } else {
            whole.push(last);
            name
        };
        if !is_re_export {
            self.mentioned.insert(whole.clone());
        }
        self.imported.insert(name, whole);
    }
}

/// Every path in an item, as its segments. Arguments of macros are not parsed: their names come from `use`.
struct Mentions<'a>(&'a mut BTreeSet<Vec<String>>);

impl<'ast> Visit<'ast> for Mentions<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            self.0.insert(
                path.segments
                    .iter()
                    .map(|segment| segment.ident.to_string())
                    .collect(),
            );
        }
        visit::visit_path(self, path);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }
}
