// What a server's firmware says of its first four CPUs, and QEMU's does not: an idle state deeper than
// HLT, and three frequencies. Nothing happens behind the ports, but the kernel keeps its accounts.
DefinitionBlock ("", "SSDT", 2, "TLLAB", "SERVER", 1)
{
    External (\_SB.CPUS.C000, DeviceObj)
    External (\_SB.CPUS.C001, DeviceObj)
    External (\_SB.CPUS.C002, DeviceObj)
    External (\_SB.CPUS.C003, DeviceObj)

    // HLT, and a read of a port (0x0608: the chipset's PM timer)
    Name (\IDLE, Package ()
    {
        2,
        Package () { ResourceTemplate () { Register (FFixedHW, 1, 2, 0, 1) }, 1, 1, 1000 },
        Package () { ResourceTemplate () { Register (SystemIO, 8, 0, 0x0608) }, 2, 50, 500 }
    })
    // MHz, mW, µs, µs, control, status
    Name (\FREQ, Package ()
    {
        Package () { 2400, 40000, 10, 10, 0x30, 0x30 },
        Package () { 1800, 30000, 10, 10, 0x20, 0x20 },
        Package () { 1200, 20000, 10, 10, 0x10, 0x10 }
    })
    // the port of POST codes as a scratch port: what is written there is lost
    Name (\PORT, Package ()
    {
        ResourceTemplate () { Register (SystemIO, 8, 0, 0x80) },
        ResourceTemplate () { Register (SystemIO, 8, 0, 0x80) }
    })

    Scope (\_SB.CPUS.C000)
    {
        Method (_CST) { Return (\IDLE) }
        Method (_PCT) { Return (\PORT) }
        Method (_PSS) { Return (\FREQ) }
        Method (_PPC) { Return (0) }
    }
    Scope (\_SB.CPUS.C001)
    {
        Method (_CST) { Return (\IDLE) }
        Method (_PCT) { Return (\PORT) }
        Method (_PSS) { Return (\FREQ) }
        Method (_PPC) { Return (0) }
    }
    Scope (\_SB.CPUS.C002)
    {
        Method (_CST) { Return (\IDLE) }
        Method (_PCT) { Return (\PORT) }
        Method (_PSS) { Return (\FREQ) }
        Method (_PPC) { Return (0) }
    }
    Scope (\_SB.CPUS.C003)
    {
        Method (_CST) { Return (\IDLE) }
        Method (_PCT) { Return (\PORT) }
        Method (_PSS) { Return (\FREQ) }
        Method (_PPC) { Return (0) }
    }
}
