/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The parts that all programs use: constants, the rings, and the filters.
 */
#ifndef TAILLAB_COMMON_BPF_H
#define TAILLAB_COMMON_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>

#ifndef __TARGET_ARCH_x86
#error "the programs know system call numbers and store ordering of x86-64 only"
#endif

/* kinds of events, as in taillab_model::PackedEvent */
enum kind {
	PACKET_IN = 1,
	ENQUEUED = 2,
	READ_RETURNED = 3,
	WRITE_CALLED = 4,
	PACKET_OUT = 5,
	SLEPT = 6,
	PREEMPTED = 7,
	SEGMENT_IN = 8,
	SEGMENT_QUEUED = 9,
	SEGMENT_READ = 10,
	SEGMENT_OUT = 11,
	WOKEN = 12,
	MIGRATED = 13,
	INTERRUPT = 14,
	SOFTIRQ = 15,
	IDLE_LEFT = 16,
	PAGE_FAULT = 17,
	LOCK_TAKEN = 18,
	FREQUENCY = 19,
	RETRANSMITTED = 20,
	PAYLOAD = 24,
	SEGMENT_WRITTEN = 26,
	MAJOR_FAULT = 27,
	STORAGE_WAITED = 28,
	SLICE = 29,
	CAME_ON = 30,
	DEVICE_QUEUE = 31,
	ANNOUNCED = 32,
	ANNOUNCED_1 = 33,
	ANNOUNCED_2 = 34,
	ANNOUNCED_3 = 35,
	UPSTREAM_ANSWERED = 36,
};

#define MAX_CPUS 1024
#define MAX_DEVICES 8
#define MAX_TGIDS 64
#define MAX_ADDRESSES 8
#define MAX_SERVED 64
#define MAX_PAYLOAD 2048
#define PAYLOAD_PIECE 128 /* what fits on the stack, which has 512 bytes */
#define TID_BITS 22

/* how the server's threads are recognised */
enum membership {
	THESE_PROCESSES,
	IN_NAMESPACE,
	IN_CGROUP,
};

/*
 * Filled in before loading; the same layout as Config in object.rs. The verifier knows the
 * numbers and removes branches that they make impossible, so a branch on one costs nothing.
 */
struct config {
	u64 server_cpus[MAX_CPUS / 64];
	u64 generator_cpus[MAX_CPUS / 64];
	u64 base; /* events' times count from here */
	u64 cgroup; /* its inode */
	u32 slots; /* for each CPU, a power of two */
	u32 netns_inode;
	u32 device_count; /* 0: every device of the namespace */
	u32 devices[MAX_DEVICES];
	u32 port;
	u32 membership;
	u32 cgroup_level; /* below its hierarchy's root */
	u32 cgroup_subsystem; /* of a hierarchy of version 1; MAX_SUBSYSTEMS for version 2 */
	u32 payload_bytes; /* 0: not even the length is recorded */
	u32 payload_copied; /* whether the kernel lets programs read it */
	u32 sleeps; /* whether a sleep's system call is recorded */
	u32 tgid_count;
	u32 tgids[MAX_TGIDS];
	u32 address_count; /* 0: every address of the namespace */
	u32 addresses_left_out; /* whether they are those of other servers */
	u32 addresses[4 * MAX_ADDRESSES]; /* in network order, IPv4 mapped into IPv6 */
	u32 other_count; /* processes of others that share the server's port */
	u32 others[MAX_TGIDS];
	u32 queues; /* whether a queue may hold responses back before their driver takes them */
	u32 served_count;
	u32 served[MAX_SERVED]; /* other ports on which the server waits for clients */
};

#define MAX_SUBSYSTEMS 12

const volatile struct config config SEC(".rodata");

/*
 * One ring for each CPU, in two arrays that user space maps: `rings` holds the
 * positions, `slots` the events. Compared with BPF_MAP_TYPE_RINGBUF this takes no
 * lock, calls no helper, has no header of 8 bytes on each event, and the consumer
 * need not touch the producer's cache line.
 *
 * Producer: take a position with one atomic add (an interrupt on this CPU may come
 * in between and take the next one), fill the slot, write its first word last. The
 * first word's top bit says in which lap of the ring it was written (1 in the
 * first), so a consumer can tell a finished event from an old or an unfinished one.
 *
 * The rest of a ring's first two cache lines is its CPU's scratch memory.
 */
struct ring {
	u64 head; /* events ever written here */
	u64 no_room; /* events that found none, here or in a table */
	u64 unreadable;
	u64 current_packet; /* 1 << 32 | the packet that this CPU takes through the stack; or 0 */
	u64 softirq_since; /* when the one that runs now began; 0: none runs */
	u64 interrupt_since;
	u64 vector_since;
	u64 idle_since;
	u64 idle_state;
	u64 queued; /* the TCP socket that was stamped just now; or 0 */
	u64 write; /* socket << 32 | where the last write to a stream ends */
	u64 unused[5];
	u64 tail; /* events ever consumed; written by user space only */
	u64 seed; /* of hashes of clients, the same on all CPUs; written by user space only */
	u64 asked; /* in the first CPU's: how many other servers the server has asked */
	u64 unused2[13];
};

struct slot {
	u64 head;
	u64 values;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct ring);
	__uint(max_entries, 1); /* possible CPUs: set before loading */
} rings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct slot);
	__uint(max_entries, 1); /* possible CPUs * config.slots: set before loading */
} slots SEC(".maps");

/*
 * Positions that may be taken but not yet written when another context looks at `tail`: more
 * than one for each context that can interrupt another one on a CPU.
 */
#define MARGIN 64

static __always_inline struct ring *this_ring(u32 cpu)
{
	return bpf_map_lookup_elem(&rings, &cpu);
}

/* `extra` has eight bits that depend on the kind. Returns whether there was room. */
static __always_inline bool emit(u32 cpu, struct ring *ring, u64 now, u64 kind, u64 extra, u32 a,
				 u32 b)
{
	u64 position, lap;
	struct slot *slot;
	u32 index;

	if (*(volatile u64 *)&ring->head - *(volatile u64 *)&ring->tail >= config.slots - MARGIN) {
		__sync_fetch_and_add(&ring->no_room, 1);
		return false;
	}
	position = __sync_fetch_and_add(&ring->head, 1);
	index = cpu * config.slots + ((u32)position & (config.slots - 1));
	slot = bpf_map_lookup_elem(&slots, &index);
	if (!slot)
		return false;
	lap = position & config.slots ? 0 : 1ULL << 63;
	*(volatile u64 *)&slot->values = (u64)b << 32 | a;
	/* x86-64 keeps stores in order */
	barrier();
	*(volatile u64 *)&slot->head = lap | kind << 56 | extra << 48 |
				       ((now - config.base) & ((1ULL << 48) - 1));
	return true;
}

/* a length in nanoseconds as an event holds it: 32 bits, saturated */
static __always_inline u32 length_of(u64 since, u64 now)
{
	u64 lasted = now - since;

	return lasted > 0xffffffff ? 0xffffffff : lasted;
}

static __always_inline bool has_cpu(const volatile u64 *cpus, u32 cpu)
{
	u32 masked = cpu;

	if (cpu >= MAX_CPUS)
		return false;
	/* the compiler would remove the mask, but the verifier may no longer know the check */
	barrier_var(masked);
	return cpus[masked % MAX_CPUS / 64] >> (cpu % 64) & 1;
}

/* the ring of a CPU if it is one of the server's */
static __always_inline struct ring *server_ring(u32 cpu)
{
	return has_cpu(config.server_cpus, cpu) ? this_ring(cpu) : 0;
}

/*
 * Whether the device is watched. An index is unique only within its namespace. If a whole
 * namespace is watched, devices on top of others are not: those below have seen their packets.
 */
static __always_inline bool at_server(const struct net_device *dev)
{
	u32 i;

	if (config.device_count) {
		u32 ifindex = dev->ifindex;

		for (i = 0; i < MAX_DEVICES && i < config.device_count; i++)
			if (ifindex == config.devices[i])
				goto named;
		return false;
	} else if (dev->lower_level > 1) {
		return false;
	}
named:
	return dev->nd_net.net->ns.inum == config.netns_inode;
}

/*
 * Identifies a packet buffer. The verifier allows no shift of a pointer, but the difference of
 * two pointers is a number. So the address is counted from that of `config`, which also keeps
 * kernel addresses out of recordings.
 */
static __always_inline u32 packet_id(const struct sk_buff *skb)
{
	return ((u64)skb - (u64)&config) >> 6;
}

/*
 * Reads memory directly if the kernel has this kfunc (Linux 6.2). It only changes the type, makes
 * no call, and takes 40 ns less than bpf_probe_read_kernel.
 */
extern void *bpf_rdonly_cast(const void *obj, u32 btf_id) __ksym __weak;

/* The id of a cgroup's ancestor (or itself) at this level, which the caller knows to exist. */
static __always_inline u64 ancestor_id(const struct cgroup *cgroup, u32 level)
{
	/* the verifier knows only the first member of an array without a length */
	const void *place = (const void *)cgroup +
			    bpf_core_field_offset(struct cgroup, ancestors) + 8 * level;
	const struct cgroup *ancestor = 0;

	if (bpf_ksym_exists(bpf_rdonly_cast))
		/* any kernel type that begins with a pointer to a cgroup */
		return ((const struct cgroup_subsys_state *)bpf_rdonly_cast(
				place, bpf_core_type_id_kernel(struct cgroup_subsys_state)))
			->cgroup->kn->id;
	bpf_probe_read_kernel(&ancestor, sizeof(ancestor), place);
	return BPF_CORE_READ(ancestor, kn, id);
}

static __always_inline bool in_cgroup(const struct task_struct *task)
{
	const struct cgroup *cgroup;

	if (config.cgroup_subsystem < MAX_SUBSYSTEMS)
		cgroup = task->cgroups->subsys[config.cgroup_subsystem]->cgroup;
	else
		cgroup = task->cgroups->dfl_cgrp;
	return cgroup->level >= (int)config.cgroup_level &&
	       ancestor_id(cgroup, config.cgroup_level) == config.cgroup;
}

#define TS_COMPAT 2

/* Whether it is in a 32-bit system call, whose numbers mean other calls (arch/x86/include/asm/thread_info.h). */
static __always_inline bool in_32_bit_call(const struct task_struct *task)
{
	return task->thread_info.status & TS_COMPAT;
}

/* Whether the thread is one of the server's. */
static __always_inline bool in_server(const struct task_struct *task)
{
	u32 i, tgid;

	if (config.membership == IN_NAMESPACE)
		return task->nsproxy->net_ns->ns.inum == config.netns_inode;
	if (config.membership == IN_CGROUP)
		return in_cgroup(task);
	tgid = task->tgid;
	/* the verifier knows the count, and drops the comparisons beyond it */
	for (i = 0; i < MAX_TGIDS && i < config.tgid_count; i++)
		if (tgid == config.tgids[i])
			return true;
	return false;
}

/*
 * Whether the thread is of another server that shares the port: of one of its processes, or of a
 * child that has been started since.
 */
static __always_inline bool in_others(const struct task_struct *task)
{
	u32 i, tgid = task->tgid, parent = task->real_parent->tgid;

	for (i = 0; i < MAX_TGIDS && i < config.other_count; i++)
		if (tgid == config.others[i] || parent == config.others[i])
			return true;
	return false;
}

/* an event on this CPU, now */
static __always_inline void emit_now(u64 kind, u64 extra, u32 a, u32 b)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct ring *ring = this_ring(cpu);

	if (ring)
		emit(cpu, ring, bpf_ktime_get_ns(), kind, extra, a, b);
}

/* an event of the current thread, if it is one of the server's */
static __always_inline void emit_for_server(u64 kind, u64 extra, u32 b)
{
	const struct task_struct *task = bpf_get_current_task_btf();

	if (in_server(task))
		emit_now(kind, extra, task->pid, b);
}

/* system calls of x86-64 */
#define NR_READ 0
#define NR_WRITE 1
#define NR_READV 19
#define NR_WRITEV 20
#define NR_SENDFILE 40
#define NR_SENDTO 44
#define NR_RECVFROM 45
#define NR_SENDMSG 46
#define NR_RECVMSG 47
#define NR_SPLICE 275
#define NR_RECVMMSG 299
#define NR_SENDMMSG 307

#endif
