/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What delays requests: threads on the server's CPUs, interrupts, power states, and what the
 * server's threads wait for. Each program filters first. Something that takes time is one event,
 * at its end.
 */
#include "common.bpf.h"

#define TASK_UNINTERRUPTIBLE 2
#define TASK_STOPPED_OR_TRACED 0xc
#define SLEEP_KNOWN 1
#define UNINTERRUPTIBLE 2
#define STOPPED 4
#define NO_CALL 1023
#define ARCHITECTURE (1U << 31)

/*
 * Names of threads, mapped by user space. A thread's number gives its place. A later thread may
 * take the place, and a name that exec has changed is written again.
 */
struct thread {
	u32 tid; /* 0: no thread */
	u32 tgid;
	u64 comm[2];
	u32 server;
	u32 unused;
};

#define THREADS 65536

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct thread);
	__uint(max_entries, THREADS);
} threads SEC(".maps");

/* returns whether it was not known by that name */
static __always_inline bool note_one(const struct task_struct *task, u32 tid)
{
	u32 index = tid % THREADS;
	struct thread *thread = bpf_map_lookup_elem(&threads, &index);
	u64 comm = *(const u64 *)task->comm, rest = *(const u64 *)(task->comm + 8);

	if (!thread ||
	    (thread->tid == tid && thread->comm[0] == comm && thread->comm[1] == rest))
		return false;
	/* no thread while it is written; x86-64 keeps stores in order */
	*(volatile u32 *)&thread->tid = 0;
	barrier();
	thread->comm[0] = comm;
	thread->comm[1] = rest;
	thread->tgid = task->tgid;
	thread->server = in_server(task);
	barrier();
	*(volatile u32 *)&thread->tid = tid;
	return true;
}

/* with the main thread, whose name is that of the process: it may never run on these CPUs */
static __always_inline void note_thread(const struct task_struct *task, u32 tid)
{
	u32 tgid = task->tgid;

	if (note_one(task, tid) && tid != tgid)
		note_one(task->group_leader, tgid);
}

/* the number of the system call that a thread is in; NO_CALL or more: in none */
static __always_inline u64 call_of(struct task_struct *task)
{
	return ((struct pt_regs *)bpf_task_pt_regs(task))->orig_ax;
}

/* a thread starts to run on a CPU of the generator, which may delay its sends */
static __always_inline void came_on(u32 cpu, const struct task_struct *next)
{
	struct ring *ring;
	u32 tid = next->pid;

	if (!has_cpu(config.generator_cpus, cpu))
		return;
	ring = this_ring(cpu);
	if (!ring)
		return;
	if (tid)
		note_thread(next, tid);
	emit(cpu, ring, bpf_ktime_get_ns(), CAME_ON, 0, tid, 0);
}

/* a CPU of the server switches threads: for T3 and for what delays a request */
SEC("tp_btf/sched_switch")
int BPF_PROG(switched, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct ring *ring = server_ring(cpu);
	u32 prev_pid, next_pid, call;
	u64 now, nr;
	u8 extra = 0;

	if (!ring) {
		came_on(cpu, next);
		return 0;
	}
	now = bpf_ktime_get_ns();
	prev_pid = prev->pid;
	next_pid = next->pid;
	if (next_pid)
		note_thread(next, next_pid);
	/*
	 * A thread that is preempted on its way back to user space is runnable without
	 * `preempt`; the idle thread always is, and never preempted.
	 */
	if (prev_pid && (preempt || !prev_state)) {
		emit(cpu, ring, now, PREEMPTED, 0, prev_pid, next_pid);
		return 0;
	}
	/* of a 32-bit call the reason is not known */
	if (config.sleeps && prev_pid && in_server(prev) && !in_32_bit_call(prev)) {
		nr = call_of(prev);
		call = nr < NO_CALL ? nr : NO_CALL;
		prev_pid |= call << TID_BITS;
		extra = SLEEP_KNOWN | (prev_state & TASK_UNINTERRUPTIBLE ? UNINTERRUPTIBLE : 0) |
			(prev_state & TASK_STOPPED_OR_TRACED ? STOPPED : 0);
	}
	emit(cpu, ring, now, SLEPT, extra, prev_pid, next_pid);
	return 0;
}

/* a thread of the server is being woken, on its waker's CPU */
SEC("tp_btf/sched_waking")
int BPF_PROG(woken, struct task_struct *task)
{
	if (in_server(task))
		emit_now(WOKEN, 0, task->pid, (u32)bpf_get_current_pid_tgid());
	return 0;
}

/* a thread of the server moves to another CPU */
SEC("tp_btf/sched_migrate_task")
int BPF_PROG(migrated, struct task_struct *task, int to)
{
	if (in_server(task))
		emit_now(MIGRATED, 0, task->pid, (u16)to);
	return 0;
}

/* what began at `*since` ends; 0: it began before the programs were attached */
static __always_inline void emit_end(u32 cpu, struct ring *ring, u64 *since, u64 kind, u64 extra,
				     u32 a)
{
	u64 now, began = *since;

	if (!began)
		return;
	now = bpf_ktime_get_ns();
	*since = 0;
	emit(cpu, ring, now, kind, extra, a, length_of(began, now));
}

/*
 * Something begins or ends on this CPU. One place for each kind is enough: a device's handler, a
 * vector of the architecture and a softirq can interrupt one of another kind, but none of its
 * own.
 */
#define BEGINS(since)                                                                      \
	do {                                                                               \
		struct ring *ring_ = server_ring(bpf_get_smp_processor_id());              \
		if (ring_)                                                                 \
			ring_->since = bpf_ktime_get_ns();                                 \
		return 0;                                                                  \
	} while (0)

#define ENDS(since, kind, extra, a)                                                        \
	do {                                                                               \
		u32 cpu_ = bpf_get_smp_processor_id();                                     \
		struct ring *ring_ = server_ring(cpu_);                                    \
		if (ring_)                                                                 \
			emit_end(cpu_, ring_, &ring_->since, kind, extra, a);              \
		return 0;                                                                  \
	} while (0)

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(interrupt_begins, int irq)
{
	BEGINS(interrupt_since);
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(interrupt_ends, int irq)
{
	ENDS(interrupt_since, INTERRUPT, 0, irq & ~ARCHITECTURE);
}

/* interrupts of the architecture, by their places in taillab_model::Interrupt */
#define VECTOR(name, place)                                                                \
	SEC("tp_btf/" #name "_entry")                                                      \
	int BPF_PROG(name##_begins, int vector)                                            \
	{                                                                                  \
		BEGINS(vector_since);                                                      \
	}                                                                                  \
	SEC("tp_btf/" #name "_exit")                                                       \
	int BPF_PROG(name##_ends, int vector)                                              \
	{                                                                                  \
		ENDS(vector_since, INTERRUPT, 0, ARCHITECTURE | place);                    \
	}

VECTOR(local_timer, 0)
VECTOR(reschedule, 1)
VECTOR(call_function, 2)
VECTOR(call_function_single, 2)
VECTOR(irq_work, 3)
VECTOR(thermal_apic, 4)

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_begins, unsigned int vector)
{
	BEGINS(softirq_since);
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_ends, unsigned int vector)
{
	ENDS(softirq_since, SOFTIRQ, (u8)vector, 0);
}

/* the CPU enters a power state, or (state -1) leaves it */
SEC("tp_btf/cpu_idle")
int BPF_PROG(idle, unsigned int state, unsigned int id)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct ring *ring = server_ring(cpu);

	if (!ring)
		return 0;
	if (state == (u32)-1) {
		emit_end(cpu, ring, &ring->idle_since, IDLE_LEFT, (u8)ring->idle_state, 0);
		return 0;
	}
	ring->idle_state = state;
	ring->idle_since = bpf_ktime_get_ns();
	return 0;
}

/* the frequency of a CPU, which need not be this one */
SEC("tp_btf/cpu_frequency")
int BPF_PROG(frequency, unsigned int khz, unsigned int cpu)
{
	struct ring *ring = server_ring(cpu);

	if (ring)
		emit(cpu, ring, bpf_ktime_get_ns(), FREQUENCY, 0, khz, 0);
	return 0;
}

#define FAULT_WRITE 2

static __always_inline int emit_fault(unsigned long error_code)
{
	emit_for_server(PAGE_FAULT, !!(error_code & FAULT_WRITE), 0);
	return 0;
}

SEC("tp_btf/page_fault_user")
int BPF_PROG(page_fault, unsigned long address, struct pt_regs *regs, unsigned long error_code)
{
	return emit_fault(error_code);
}

/* in a system call that reads or writes the thread's memory */
SEC("tp_btf/page_fault_kernel")
int BPF_PROG(page_fault_in_call, unsigned long address, struct pt_regs *regs,
	     unsigned long error_code)
{
	/* the upper half is the kernel's own */
	return (s64)address < 0 ? 0 : emit_fault(error_code);
}

/*
 * A thread has handled a page fault that had to wait for storage. The kernel counts it for perf
 * once it is handled, on the thread's CPU.
 */
SEC("perf_event")
int major_fault(void *event)
{
	emit_for_server(MAJOR_FAULT, 0, 0);
	return 0;
}

/*
 * A thread has asked storage for something, in a system call. The answer is known to belong to the
 * same call only if the call's number is the same and no read or write has ended since.
 */
struct ask {
	u64 since;
	u64 calls_ended;
	u64 call;
};

/* nothing removes the entry of a thread that wrote or has ended: the least recently used makes room */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, u32);
	__type(value, struct ask);
	__uint(max_entries, 4096); /* on many CPUs more: set before loading */
} asks SEC(".maps");

#define NR_IO_URING_ENTER 426

/*
 * Whether a softirq or an interrupt runs: what it asks or waits for is not the interrupted
 * thread's. Known only on the server's CPUs; user space attaches the programs of both for it.
 */
static __always_inline bool on_top(const struct ring *ring)
{
	return ring->softirq_since || ring->interrupt_since || ring->vector_since;
}

SEC("tp_btf/block_bio_queue")
int BPF_PROG(storage_asked, void *bio)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct ask *before, ask = {};
	struct ring *ring;
	u32 tid;

	if (!in_server(task))
		return 0;
	ring = this_ring(bpf_get_smp_processor_id());
	if (!ring || on_top(ring))
		return 0;
	ask.call = call_of(task);
	/* a page fault has its own end, and io_uring does not wait for what it asks for */
	if (ask.call >= NO_CALL || ask.call == NR_IO_URING_ENTER)
		return 0;
	ask.calls_ended = task->ioac.syscr + task->ioac.syscw;
	tid = task->pid;
	before = bpf_map_lookup_elem(&asks, &tid);
	/* one wait can be for several things */
	if (before && before->call == ask.call && before->calls_ended == ask.calls_ended)
		return 0;
	ask.since = bpf_ktime_get_ns();
	bpf_map_update_elem(&asks, &tid, &ask, BPF_ANY);
	return 0;
}

/* the thread has what it asked for: its wait is over */
static __always_inline int emit_storage_waited(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct ring *ring;
	struct ask *ask;
	u32 cpu, tid;
	u64 now;

	if (!in_server(task))
		return 0;
	tid = task->pid;
	ask = bpf_map_lookup_elem(&asks, &tid);
	if (!ask)
		return 0;
	cpu = bpf_get_smp_processor_id();
	ring = this_ring(cpu);
	if (!ring || on_top(ring))
		return 0;
	now = bpf_ktime_get_ns();
	if (ask->call == call_of(task) &&
	    ask->calls_ended == task->ioac.syscr + task->ioac.syscw)
		emit(cpu, ring, now, STORAGE_WAITED, 0, (u32)ask->call << TID_BITS | tid,
		     length_of(ask->since, now));
	bpf_map_delete_elem(&asks, &tid);
	return 0;
}

/* from the page cache: the pages are there and up to date */
SEC("tp_btf/mm_filemap_get_pages")
int BPF_PROG(pages_read, void *mapping)
{
	return emit_storage_waited();
}

/* direct I/O, past the page cache */
SEC("tp_btf/iomap_dio_complete")
int BPF_PROG(direct_io_ended, struct kiocb *iocb)
{
	/* the caller does not wait */
	if (iocb->ki_complete)
		return 0;
	return emit_storage_waited();
}

/* a thread waits for a lock, perhaps while it waits for another one */
struct wait {
	u64 lock;
	u32 tid;
	u32 unused;
};

struct waited {
	u64 since;
	u64 flags;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct wait);
	__type(value, struct waited);
	__uint(max_entries, 4096);
} waits SEC(".maps");

/* of the kernel's flags of a lock */
#define LCB_F_MUTEX 32

SEC("tp_btf/contention_begin")
int BPF_PROG(lock_wanted, void *lock, unsigned int flags)
{
	const struct task_struct *task = bpf_get_current_task_btf();
	struct waited *before, waited = {};
	struct wait wait = {};
	struct ring *ring;

	if (!in_server(task))
		return 0;
	/* an interrupt's wait is not the thread's */
	ring = this_ring(bpf_get_smp_processor_id());
	if (!ring || on_top(ring))
		return 0;
	wait.lock = (u64)lock;
	wait.tid = task->pid;
	/* who waits for a mutex spins and sleeps in turn, and each time it begins again: one wait */
	if (flags & LCB_F_MUTEX) {
		before = bpf_map_lookup_elem(&waits, &wait);
		if (before && before->flags != flags) {
			before->flags = flags;
			return 0;
		}
	}
	waited.since = bpf_ktime_get_ns();
	waited.flags = flags;
	if (bpf_map_update_elem(&waits, &wait, &waited, BPF_ANY))
		__sync_fetch_and_add(&ring->no_room, 1);
	return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(lock_taken, void *lock, int ret)
{
	const struct task_struct *task = bpf_get_current_task_btf();
	struct waited *waited;
	struct wait wait = {};
	struct ring *ring;
	u32 cpu;
	u64 now;

	if (!in_server(task))
		return 0;
	wait.lock = (u64)lock;
	wait.tid = task->pid;
	waited = bpf_map_lookup_elem(&waits, &wait);
	if (!waited)
		return 0;
	cpu = bpf_get_smp_processor_id();
	ring = this_ring(cpu);
	now = bpf_ktime_get_ns();
	if (ring)
		emit(cpu, ring, now, LOCK_TAKEN, (u8)waited->flags, wait.tid,
		     length_of(waited->since, now));
	bpf_map_delete_elem(&waits, &wait);
	return 0;
}
