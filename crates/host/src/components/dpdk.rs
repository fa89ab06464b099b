//! A frame to DPDK's `testpmd` and back, over a veth pair between two network namespaces. Its
//! driver for packet sockets needs no card; a real card is usually tested with the same program.

use std::ffi::OsString;
use std::time::Duration;

use taillab_model::Nanos;

use super::bounds::Bounds;
use super::error::ComponentError;
use super::frames::{frame, open_socket, receive, round_trips, write};
use crate::cpus::{self, CpuSet, Placement};
use crate::private_folder::PrivateFolder;
use crate::programs;
use crate::server::{ServerProcess, ServerSpec};
use crate::testbed::{Testbed, TestbedSpec};

const PROGRAM: &str = "dpdk-testpmd";
/// The testbed's names of the two devices.
const SERVER: &str = "tl-server";
const CLIENT: &str = "tl-client";
/// How long testpmd may take to start: it sets up its memory before it forwards anything.
const PATIENCE: Duration = Duration::from_secs(30);
/// Buffers of 2 KiB: enough for one frame in flight, and little memory.
const BUFFERS: u32 = 2_048;
/// Room for the files that testpmd writes.
const FOLDER_BYTES: u64 = 1 << 20;

/// Round trips of a frame of 60 bytes from a packet socket that spins on CPU `client` to testpmd
/// on CPU `server`, which swaps the addresses and sends it back.
///
/// # Errors
/// [`ComponentError`]: DPDK is not installed or does not start, or no privilege for a namespace.
pub fn testpmd_round_trips(
    client: u32,
    server: u32,
    bounds: Bounds<'_>,
) -> Result<Vec<Nanos>, ComponentError> {
    let program = programs::find(PROGRAM.as_ref())?;
    let placement = Placement {
        server: CpuSet::single(server),
        client: CpuSet::single(client),
    };
    let both = [client, server].into_iter().collect();
    let testbed = Testbed::veth(&TestbedSpec { placement })?;
    // DPDK takes the folder of its files from this variable; they are removed with the folder
    let folder = PrivateFolder::new(FOLDER_BYTES)?;
    let mut testpmd = ServerProcess::spawn(&ServerSpec {
        name: PROGRAM.to_owned(),
        program,
        args: arguments(client, server),
        env: vec![("RUNTIME_DIRECTORY".into(), ".".into())],
        namespace: testbed.server_namespace(),
        cpus: both,
        user: None,
        folder: Some(&folder),
        open_files: 0,
    })?;
    let taken = testbed.run_at_client(|| {
        cpus::pin_current_thread(&CpuSet::single(client))?;
        let socket = open_socket(CLIENT)?;
        let mut buffer = [0; 2_048];
        let mut comes_back = || {
            write(&socket, &frame(0)).is_ok()
                && receive(&socket, &mut buffer).is_ok_and(|frame| frame.is_some())
        };
        testpmd.wait_ready(PATIENCE, &mut comes_back)?;
        round_trips(&socket, bounds, |_| Ok(()))
    })?;
    drop(testpmd);
    testbed.remove()?;
    taken
}

/// Its first thread sleeps on the client's CPU, its second one spins on the server's.
fn arguments(client: u32, server: u32) -> Vec<OsString> {
    let lcores = format!("--lcores=0@{client},1@{server}");
    let device = format!("--vdev=net_af_packet0,iface={SERVER}");
    let buffers = format!("--total-num-mbufs={BUFFERS}");
    let arguments = [
        // ordinary pages and no cards; nobody else reads its settings
        "--no-huge",
        "-m128",
        "--no-pci",
        "--no-shconf",
        "--no-telemetry",
        &lcores,
        &device,
        "--",
        "--forward-mode=macswap",
        "--port-topology=loop",
        &buffers,
        // without this it waits for a key, and there is no keyboard
        "--stats-period=86400",
    ];
    arguments.into_iter().map(OsString::from).collect()
}
