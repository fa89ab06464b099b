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
