//! What a report says of the machine.

use taillab_host::environment::Environment;

/// The hypervisor's name, where there is one.
pub fn hypervisor(environment: &Environment) -> Option<String> {
    let facts = &environment.virtualization;
    let name = facts
        .product
        .clone()
        .or_else(|| facts.hypervisor_type.clone());
    name.or_else(|| facts.hypervisor_flag?.then(|| "a hypervisor".to_owned()))
}

/// The hypervisor's name on this machine, as far as the kernel says it.
pub fn hypervisor_here() -> Option<String> {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let flags = cpus.lines().find(|line| line.starts_with("flags"))?;
    flags
        .split_whitespace()
        .find(|flag| *flag == "hypervisor")?;
    let product = std::fs::read_to_string("/sys/class/dmi/id/product_name").ok();
    let product = product.map(|name| name.trim().to_owned());
    Some(
        product
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| "a hypervisor".to_owned()),
    )
}
