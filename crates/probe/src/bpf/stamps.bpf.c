// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The stamps T1, T2, T4, T5 and T6 of every request of one server, the thread switches of its
 * CPUs, and what else delays requests. T3 follows from the others.
 *
 * The programs run on the server's core for every request. So each filters before it does anything
 * else, and writes at most one event of 16 bytes (except for payload). User space joins the events
 * to requests.
 */
#include "common.bpf.h"
#include "disturbances.bpf.h"
#include "udp.bpf.h"
#include "tcp.bpf.h"

/*
 * A slice begins or ends, as the argument says. It is attached to nothing: user space runs it, so
 * that its event has a place among those of the other programs.
 */
SEC("raw_tp")
int BPF_PROG(mark_slice, u64 begins)
{
	emit_now(SLICE, !!begins, 0, 0);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
