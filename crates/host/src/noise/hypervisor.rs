//! Whether something below this kernel can take its CPUs.

use crate::environment::Virtualization;
use crate::roots::Roots;

/// The hypervisor's name, where this is a virtual machine.
pub fn hypervisor(roots: &Roots) -> Option<String> {
    let facts = Virtualization::read(&roots.proc, &roots.sys);
    if facts.hypervisor_flag == Some(false) && facts.hypervisor_type.is_none() {
        return None;
    }
    let virtual_machine = facts.hypervisor_flag == Some(true) || facts.hypervisor_type.is_some();
    let name = facts.product.or(facts.hypervisor_type);
    virtual_machine.then(|| name.unwrap_or_else(|| "a hypervisor".to_owned()))
}
