//! Requests whose packet is lost between the driver and TCP.

use taillab_load::ground_truth::{GroundTruth, InjectedInterval};

use taillab_model::Monotonic;
use taillab_model::explanation::Cause;

use super::bpf::{
    Array, Assembly, JEQ, JGE, JLT, JNE, KTIME, LOAD_BYTES, REMEDY, TCX_DROP, TCX_NEXT,
};
use super::{InjectionError, Stop, system};
use taillab_host::testbed::Testbed;

/// Values of the map: the counts, then the times of each loss. When it is full, nothing more is dropped.
const ROOM: u32 = 1 << 14;
/// One value for each port of a client.
const PORTS: u32 = 1 << 16;
/// Smaller packets carry no request of the built-in servers: Ethernet, IPv4 and TCP with
/// time stamps take 66 bytes.
const SMALLEST: i32 = 100;
/// Offset of the client's port in bytes: after Ethernet and an IPv4 header without options.
const SOURCE_PORT: i32 = 14 + 20;

/// Drops one in a number of request packets at the server's device, after the driver has handed
/// them to the stack (T1) and before TCP has queued them (T2).
///
/// The truth is when each request was lost and when the client's next packet on its connection came,
/// which is the same request again.
///
/// # Errors
/// [`InjectionError`] if such a program is not available, and from [`Stop`] if the record cannot be read.
pub fn packet_loss(testbed: &Testbed, one_in: u32) -> Result<Stop, InjectionError> {
    let new = |entries| Array::new(entries).map_err(system("make a BPF map", REMEDY));
    let (times, pending) = (new(ROOM)?, new(PORTS)?);
    let program = program(&times, &pending, one_in.max(2) as i32);
    let ifindex = testbed.server_device().ifindex;
    let link = testbed
        .run_at_server(|| program.attach(ifindex))?
        .map_err(system("attach a program to the device", REMEDY))?;
    // the program holds a reference to `pending`
    Ok(Box::new(move || {
        drop(link);
        let read = |key| times.get(key).map_err(system("read a BPF map", REMEDY));
        let lost = read(0)?.1;
        let mut intervals = Vec::new();
        for key in 1..=lost.min(u64::from(ROOM) - 1) as u32 {
            let (from, to) = read(key)?;
            if to > from {
                intervals.push(InjectedInterval {
                    source: 0,
                    cpu: None,
                    held: None,
                    from_ns: Monotonic::from_nanos_since_boot(from),
                    to_ns: Monotonic::from_nanos_since_boot(to),
                    times: 1,
                });
            }
        }
        let injected = format!("loss:{one_in}");
        Ok(GroundTruth::of_one(
            injected,
            Cause::Retransmit,
            None,
            intervals,
        ))
    }))
}

/// Counts requests and losses in the first value of `times`; the others are the times at which a
/// packet was dropped and the next one of its port came. `pending` has, for each port, the number
/// of the loss whose next packet has not come yet, or 0.
fn program(times: &Array, pending: &Array, one_in: i32) -> Assembly {
    const LENGTH: i16 = 0;
    let mut code = Assembly::default();
    // r6 context, r7 port, r8 a value's number, r9 the time
    code.copy(6, 1)
        .load_32(7, 6, LENGTH)
        .jump(JLT, 7, SMALLEST, "pass")
        .copy(1, 6)
        .set(2, SOURCE_PORT)
        .copy(3, 10)
        .add(3, -8)
        .set(4, 2)
        .call(LOAD_BYTES)
        .jump(JNE, 0, 0, "pass")
        .load_16(7, 10, -8)
        .call(KTIME)
        .copy(9, 0)
        // is this the first packet of its port after a loss?
        .value(pending, 7, "pass")
        .load(8, 0, 0)
        .jump(JEQ, 8, 0, "fresh")
        .set(1, 0)
        .store(0, 0, 1)
        .value(times, 8, "pass")
        .store(0, 8, 9)
        .end(TCX_NEXT)
        .label("fresh")
        .set(1, 0)
        .value(times, 1, "pass")
        .load(1, 0, 0)
        .add(1, 1)
        .store(0, 0, 1)
        .modulo(1, one_in)
        .jump(JNE, 1, 0, "pass")
        .load(8, 0, 8)
        .add(8, 1)
        .jump(JGE, 8, ROOM as i32, "pass")
        .store(0, 8, 8)
        .value(times, 8, "pass")
        .store(0, 0, 9)
        .value(pending, 7, "pass")
        .store(0, 0, 8)
        .end(TCX_DROP)
        .label("pass")
        .end(TCX_NEXT);
    code
}
