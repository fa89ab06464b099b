// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The stamps T1, T2, T4, T5 and T6 of every request of one server, and the thread
 * changes of its CPUs. T3 follows from the others.
 *
 * They run on the server's core for every request, so each one filters before it
 * does anything else and writes at most one event of 16 bytes. Joining events to
 * requests is left to user space.
 */
#include "common.bpf.h"
#include "udp.bpf.h"
#include "tcp.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* a CPU of the server changes threads: for T3 and for what delays a request */
SEC("tp_btf/sched_switch")
int BPF_PROG(switched, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct ring *ring;
	u32 prev_pid;

	if (cpu >= MAX_CPUS || !(config.server_cpus[cpu / 64] >> (cpu % 64) & 1))
		return 0;
	ring = this_ring(cpu);
	if (!ring)
		return 0;
	prev_pid = prev->pid;
	/*
	 * A thread that is preempted on its way back to user space is runnable without
	 * `preempt`; the idle thread always is, and never preempted.
	 */
	emit(cpu, ring, bpf_ktime_get_ns(),
	     prev_pid && (preempt || !prev_state) ? PREEMPTED : SLEPT, prev_pid, next->pid);
	return 0;
}
