//! Facts about the machine, the testbed and the server process.
