//! Compiles the eBPF programs, where the feature `bpf` wants them.

fn main() {
    println!("cargo::rerun-if-changed=src/bpf");
    #[cfg(feature = "bpf")]
    bpf::compile();
}

#[cfg(feature = "bpf")]
mod bpf {
    use std::env;
    use std::ffi::OsString;
    use std::path::PathBuf;
    use std::process::Command;

    use libbpf_cargo::SkeletonBuilder;

    pub(crate) fn compile() {
        println!("cargo::rerun-if-env-changed=CLANG");
        let clang = env::var_os("CLANG").unwrap_or_else(|| OsString::from("clang"));
        if Command::new(&clang).arg("--version").output().is_err() {
            println!(
                "cargo::error=taillab's probe needs the compiler {} for its eBPF programs: \
                 run `sudo apt-get install clang libelf-dev zlib1g-dev pkg-config`, or name \
                 another clang in CLANG, or build with --no-default-features to do without it",
                clang.display()
            );
            return;
        }
        let Some(out) = env::var_os("OUT_DIR").map(PathBuf::from) else {
            println!("cargo::error=OUT_DIR is not set: run this through cargo");
            return;
        };
        for name in ["stamps", "noise"] {
            let result = SkeletonBuilder::new()
                .source(format!("src/bpf/{name}.bpf.c"))
                .obj(out.join(format!("{name}.bpf.o")))
                .clang(&clang)
                // v3 has the atomic add that returns the old value; Linux 5.12 and later know it
                .clang_args(["-mcpu=v3", "-Wall", "-Werror", "-Isrc/bpf"])
                .build();
            if let Err(error) = result {
                println!(
                    "cargo::error=the eBPF programs do not compile; taillab needs clang 14 or later"
                );
                for line in format!("{error:#}").lines() {
                    println!("cargo::error={line}");
                }
            }
        }
    }
}
