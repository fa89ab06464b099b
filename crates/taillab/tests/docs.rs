//! What the documents for contributors name exists: paths, modules, constants, links, tests. README names what it must.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use taillab_analysis::Framing;
use taillab_load::Protocol;

/// The documents, from the root of the repository, besides the `README.md` of each folder.
const DOCUMENTS: [&str; 3] = [
    "docs/architecture.md",
    "docs/glossary.md",
    "CONTRIBUTING.md",
];

/// `docs/architecture.md` is two pages, and what everybody reads before the first change is one.
const LONGEST: [(&str, usize); 2] = [("docs/architecture.md", 10_000), ("CONTRIBUTING.md", 5_000)];

/// How the names of sources end.
const ENDS: [&str; 5] = [".rs", ".h", ".c", ".sh", ".py"];

fn root() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    folder.canonicalize().unwrap()
}

/// Every file and folder below, from the root, and the text of the sources.
#[derive(Default)]
struct Tree {
    paths: Vec<String>,
    sources: String,
}

impl Tree {
    fn read(root: &Path) -> Self {
        let mut tree = Self::default();
        tree.add(root, "");
        tree
    }

    fn add(&mut self, folder: &Path, shown: &str) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let is_built = name == "target" && folder.join("Cargo.toml").exists();
            if is_built || name == ".git" {
                continue;
            }
            let shown = format!("{shown}/{name}");
            if path.is_dir() {
                self.add(&path, &shown);
            } else if ENDS.iter().any(|end| name.ends_with(end)) || folder.ends_with("scripts") {
                self.sources += &fs::read_to_string(&path).unwrap_or_default();
            }
            self.paths.push(shown);
        }
    }

    /// Whether a path ends like this. `*` is any part of a name.
    fn has(&self, end: &str) -> bool {
        let wanted: Vec<_> = end.trim_end_matches('/').rsplit('/').collect();
        self.paths.iter().any(|path| {
            let names: Vec<_> = path.rsplit('/').collect();
            let mut pairs = wanted.iter().zip(&names);
            names.len() >= wanted.len() && pairs.all(|(wanted, name)| fits(wanted, name))
        })
    }

    /// Whether `crate::module::module` exists, as far as it is one of our crates and names modules.
    fn has_module(&self, path: &str) -> bool {
        let mut parts = path.split("::");
        let of_crate = format!("crates/{}/src", parts.next().unwrap_or_default());
        let is_module = |part: &&str| part.starts_with(|c: char| c.is_ascii_lowercase());
        let modules: Vec<_> = parts.take_while(is_module).collect();
        let file = [&[of_crate.as_str()], &modules[..]].concat().join("/");
        !self.has(&of_crate) || self.has(&file) || self.has(&format!("{file}.rs"))
    }
}

fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        Some((start, end)) => name.starts_with(start) && name.ends_with(end),
        None => pattern == name,
    }
}

/// `a/{b,c}.rs` as `a/b.rs` and `a/c.rs`.
fn expanded(word: &str) -> Vec<String> {
    match word
        .split_once('{')
        .and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
    {
        Some((before, (choices, after))) => {
            let each = choices
                .split(',')
                .map(|choice| format!("{before}{choice}{after}"));
            each.collect()
        }
        None => vec![word.to_owned()],
    }
}

/// Whether a word in code is a path of this repository.
fn is_path(word: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || "_-./*{},".contains(c);
    let is_one = ENDS
        .iter()
        .chain(&[".md", ".toml"])
        .any(|end| word.ends_with(end))
        || word.contains('/') && !word.contains(|c: char| c.is_ascii_uppercase());
    let elsewhere = ["/", "-", "target/", "."]
        .iter()
        .any(|start| word.starts_with(start));
    is_one && word.chars().all(good) && !elsewhere && !word.contains("NAME")
}

/// Whether a word in code is an identifier. Words of lower-case letters are not: they may be prose.
fn is_identifier(word: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_word = word.chars().all(|c| c.is_ascii_lowercase());
    word.chars().all(is_name) && word.starts_with(|c: char| c.is_alphabetic()) && !is_word
}

/// The documents: those with a name of their own, and the `README.md` of every folder.
fn documents(tree: &Tree) -> Vec<String> {
    let pages = tree.paths.iter().map(|path| path.trim_start_matches('/'));
    // tools keep pages of their own in hidden folders
    let pages = pages.filter(|path| path.ends_with("/README.md") && !path.contains("/."));
    let named = DOCUMENTS.iter().copied();
    named.chain(pages).map(str::to_owned).collect()
}

/// The anchors of a page, as GitHub makes them from its headings.
fn anchors(page: &str) -> impl Iterator<Item = String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
        title
            .chars()
            .filter(kept)
            .collect::<String>()
            .replace(' ', "-")
    })
}

/// The links of a document that lead nowhere: to no file, or to no heading of a page.
fn broken(document: &Path, text: &str) -> Vec<String> {
    let links = text.split("](").skip(1);
    let links = links.filter_map(|rest| rest.split(')').next());
    let links = links.filter(|link| !link.starts_with("http"));
    let leads_nowhere = |link: &&str| {
        let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
        let at = match path {
            "" => document.to_owned(),
            path => document.with_file_name("").join(path),
        };
        let has_anchor = || {
            let page = fs::read_to_string(&at).unwrap_or_default();
            anchors(&page).any(|known| known == anchor)
        };
        !at.exists() || !anchor.is_empty() && !has_anchor()
    };
    links.filter(leads_nowhere).map(str::to_owned).collect()
}

/// What a document names that does not exist.
fn missing(tree: &Tree, text: &str) -> Vec<String> {
    // fences are spans too: three backticks change in and out three times
    let code = text
        .split('`')
        .skip(1)
        .step_by(2)
        .flat_map(str::split_whitespace);
    let words = code.map(|word| word.trim_matches([',', ';', ':', '(', ')', '"', '\'', '!']));
    let is_there = |word: &str| match word {
        _ if is_path(word) => tree.has(word),
        _ if word.contains("::") => tree.has_module(word),
        _ if is_identifier(word) => tree.sources.contains(word),
        _ => true,
    };
    let all = words.flat_map(expanded);
    all.filter(|word| !is_there(word)).collect()
}

#[test]
fn what_documents_name_is_there() {
    let tree = Tree::read(&root());
    let documents = documents(&tree);
    assert!(documents.len() > 15, "the pages were not found");
    for document in documents {
        let path = root().join(&document);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(missing(&tree, &text), [""; 0], "{document} names them");
        assert_eq!(broken(&path, &text), [""; 0], "{document} links them");
    }
    // in two parts, or this file would have it
    let unknown = concat!("NO_SUCH", "_CONSTANT");
    let wrong = format!("`analysis/src/no.rs` `load::nothing` `{unknown}` `host::tune`");
    let found = missing(&tree, &wrong);
    assert_eq!(found, ["analysis/src/no.rs", "load::nothing", unknown]);
}

#[test]
fn the_links_of_every_page_in_docs_lead_somewhere() {
    let mut pages = 0;
    for folder in ["docs", "docs/notes"] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let text = fs::read_to_string(&path).unwrap();
                assert_eq!(
                    broken(&path, &text),
                    [""; 0],
                    "{} links them",
                    path.display()
                );
                pages += 1;
            }
        }
    }
    assert!(pages > 25, "{pages}");
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let page = root().join("README.md");
    let text = "[a](CONTRIBUTING.md#recipes) [b](no.md) [c](CONTRIBUTING.md#no) [d](https://x/no)";
    assert_eq!(broken(&page, text), ["no.md", "CONTRIBUTING.md#no"]);
}

/// A `cargo test -p PACKAGE … FILTER` of a document: it runs what has the filter in its name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TestCommand {
    package: String,
    filters: Vec<String>,
}

impl TestCommand {
    /// Those of a page that name a package.
    fn all(page: &str) -> Vec<Self> {
        let begins = page.match_indices("cargo test ");
        let commands = begins.filter_map(|(at, start)| {
            let line = page[..at].rsplit('\n').next().unwrap_or_default();
            // a span may go on in the next line, a command in a block does not
            let end = if line.contains('`') { '`' } else { '\n' };
            let rest = &page[at + start.len()..];
            Self::parse(rest.split(end).next().unwrap_or_default())
        });
        commands.collect()
    }

    fn parse(arguments: &str) -> Option<Self> {
        const WITH_VALUE: [&str; 6] = [
            "--test",
            "--bin",
            "--example",
            "--bench",
            "--features",
            "-j",
        ];
        let mut words = arguments
            .split_whitespace()
            .take_while(|word| !word.starts_with('#'));
        let (mut package, mut filters) = (None, Vec::new());
        while let Some(word) = words.next() {
            if matches!(word, "-p" | "--package") {
                package = words.next();
            } else if WITH_VALUE.contains(&word) {
                words.next();
            } else if !word.starts_with('-') {
                filters.push(word.to_owned());
            }
        }
        let package = package?.to_owned();
        Some(Self { package, filters })
    }

    /// The filters that match no test of the package, as far as the names of its modules and functions say.
    fn matching_nothing(&self, root: &Path, tree: &Tree) -> Vec<String> {
        let (all_modules, functions) = names_in(root, tree, &self.package);
        let is_there = |filter: &&String| {
            let (modules, last) = filter.rsplit_once("::").unwrap_or(("", filter));
            let mut modules = modules.split("::").filter(|module| !module.is_empty());
            let has = |module| all_modules.iter().any(|name| name == module);
            let mut names = all_modules.iter().chain(&functions);
            modules.all(has) && names.any(|name| name.contains(last))
        };
        let filters = self.filters.iter();
        filters.filter(|it| !is_there(it)).cloned().collect()
    }
}

/// The names of a package's modules (its files and folders, too), and of its functions.
fn names_in(root: &Path, tree: &Tree, package: &str) -> (Vec<String>, Vec<String>) {
    let wanted = format!("name = \"{package}\"\n");
    let is_its = |path: &&String| {
        let text = fs::read_to_string(root.join(path.trim_start_matches('/')));
        path.ends_with("/Cargo.toml") && text.is_ok_and(|text| text.contains(&wanted))
    };
    let manifest = tree.paths.iter().find(is_its);
    let Some(folder) = manifest.and_then(|path| path.strip_suffix("Cargo.toml")) else {
        return Default::default();
    };
    let sources = tree.paths.iter().filter(|path| path.ends_with(".rs"));
    let sources = sources.filter_map(|path| Some((path, path.strip_prefix(folder)?)));
    let (mut modules, mut functions) = (Vec::new(), Vec::new());
    for (path, inside) in sources {
        let of_path = inside.trim_end_matches(".rs").split('/');
        modules.extend(of_path.map(str::to_owned));
        let text = fs::read_to_string(root.join(path.trim_start_matches('/'))).unwrap();
        for (keyword, names) in [("fn ", &mut functions), ("mod ", &mut modules)] {
            let named = text.split(keyword).skip(1);
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let named = named.map(|rest| rest.split(|c| !is_name(c)).next().unwrap_or_default());
            names.extend(named.map(str::to_owned));
        }
    }
    (modules, functions)
}

#[test]
fn the_tests_that_pages_tell_to_run_are_there() {
    let (root, tree) = (root(), Tree::read(&root()));
    let pages = tree.paths.iter().map(|path| path.trim_start_matches('/'));
    let pages = pages.filter(|path| path.ends_with(".md") && !path.contains("/."));
    let mut commands = 0;
    for page in pages {
        let text = fs::read_to_string(root.join(page)).unwrap();
        for command in TestCommand::all(&text) {
            let nothing = command.matching_nothing(&root, &tree);
            assert_eq!(nothing, [""; 0], "{page}: {command:?} runs no such test");
            commands += 1;
        }
    }
    assert!(commands > 5, "{commands}");
}

#[test]
fn a_command_that_runs_no_test_is_found() {
    let page = "a `cargo test -p taillab-experiment --lib fix::decide::table --\n--ignored`, \
        `cargo test -p taillab --bin taillab fix::decide::table`\n```\n\
        cargo test -p taillab-queueing --test no_such_name -- no_such_filter  # as said\n\
        cargo test --workspace no_such_filter\n```\n";
    let commands = TestCommand::all(page);
    let packages: Vec<&str> = commands.iter().map(|it| it.package.as_str()).collect();
    assert_eq!(
        packages,
        ["taillab-experiment", "taillab", "taillab-queueing"]
    );
    let (root, tree) = (root(), Tree::read(&root()));
    let nothing = |command: &TestCommand| command.matching_nothing(&root, &tree);
    let nothing: Vec<Vec<String>> = commands.iter().map(nothing).collect();
    assert!(nothing[0].is_empty(), "{nothing:?}");
    assert_eq!(nothing[1..], [["fix::decide::table"], ["no_such_filter"]]);
}

#[test]
fn the_first_pages_are_short() {
    for (document, most) in LONGEST {
        let bytes = fs::read(root().join(document)).unwrap().len();
        assert!(bytes <= most, "{document}: {bytes} bytes, of {most}");
    }
}

#[test]
fn each_walk_names_at_most_eight_files() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let (_, walks) = page.split_once("\n## Four walks\n").unwrap();
    let walks = walks.split("\n## ").next().unwrap_or_default();
    let walks: Vec<&str> = walks.split("\n### ").skip(1).collect();
    assert_eq!(walks.len(), 4);
    for walk in walks {
        let code = walk.split('`').skip(1).step_by(2);
        let files: BTreeSet<&str> = code
            .filter(|word| ENDS.iter().any(|end| word.ends_with(end)))
            .collect();
        assert!((1..=8).contains(&files.len()), "{walk}");
    }
}

#[test]
fn readme_names_every_protocol_and_every_framing() {
    let readme = fs::read_to_string(root().join("README.md"))
        .unwrap()
        .to_lowercase();
    let paragraph = |start: &str| {
        readme
            .split("\n\n")
            .find(|text| text.contains(start))
            .unwrap()
    };
    let load = paragraph("**`load`**");
    for name in Protocol::names() {
        assert!(
            load.contains(name),
            "{name}: name it in README under `load`"
        );
    }
    let content = paragraph("reads up to 2 kib of each packet");
    for name in Framing::names().split(", ") {
        assert!(
            content.contains(name),
            "{name}: name it in README under \"How root is used\""
        );
    }
}
