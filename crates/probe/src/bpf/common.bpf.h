/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the programs for datagrams and for streams share: their constants, the rings,
 * and the filters.
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

#define ETH_P_IP 0x0800
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define MSG_PEEK 2
#define IP_OFFSET 0x1fff /* fragment offset bits of iphdr.frag_off */

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
};

#define MAX_CPUS 1024
#define MAX_TGIDS 64

/* Filled in before loading; the same layout as Config in object.rs. */
struct config {
	u64 server_cpus[MAX_CPUS / 64];
	u64 base; /* what events' times count from */
	u32 slots; /* for each CPU, a power of two */
	u32 ifindex;
	u32 netns_inode;
	u32 port;
	u32 tgid_count; /* 0: every process in the namespace */
	u32 tgids[MAX_TGIDS];
};

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
 */
struct ring {
	u64 head; /* events ever written here */
	u64 ring_full;
	u64 unreadable;
	u64 current_packet; /* 1 << 32 | the packet that this CPU takes through the stack; or 0 */
	u64 unused[12];
	u64 tail; /* events ever consumed; written by user space only */
	u64 unused2[15];
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
 * Positions taken but not yet written when another context looks at `tail`: one
 * for each context that can interrupt another one on a CPU, with room to spare.
 */
#define MARGIN 64

static __always_inline struct ring *this_ring(u32 cpu)
{
	return bpf_map_lookup_elem(&rings, &cpu);
}

static __always_inline void emit(u32 cpu, struct ring *ring, u64 now, u64 kind, u32 a, u32 b)
{
	u64 position, lap;
	struct slot *slot;
	u32 index;

	if (*(volatile u64 *)&ring->head - *(volatile u64 *)&ring->tail >= config.slots - MARGIN) {
		__sync_fetch_and_add(&ring->ring_full, 1);
		return;
	}
	position = __sync_fetch_and_add(&ring->head, 1);
	index = cpu * config.slots + ((u32)position & (config.slots - 1));
	slot = bpf_map_lookup_elem(&slots, &index);
	if (!slot)
		return;
	lap = position & config.slots ? 0 : 1ULL << 63;
	*(volatile u64 *)&slot->values = (u64)b << 32 | a;
	/* x86-64 keeps stores in order */
	barrier();
	*(volatile u64 *)&slot->head = lap | kind << 56 | ((now - config.base) & ((1ULL << 48) - 1));
}

static __always_inline bool at_server(const struct net_device *dev)
{
	/* an index is unique within its namespace only */
	return dev->ifindex == config.ifindex &&
	       dev->nd_net.net->ns.inum == config.netns_inode;
}

/*
 * Which packet buffer it is. The verifier forbids to shift a pointer, but lets the
 * difference of two be a number: so the address is counted from that of `config`,
 * which also keeps kernel addresses out of recordings.
 */
static __always_inline u32 packet_id(const struct sk_buff *skb)
{
	return ((u64)skb - (u64)&config) >> 6;
}

/*
 * Reads header bytes in place where the kernel has this kfunc (Linux 6.2): it is no
 * call but a change of type, and saves 40 ns against bpf_probe_read_kernel.
 */
extern void *bpf_rdonly_cast(const void *obj, u32 btf_id) __ksym __weak;

/* any kernel type that begins with four 16-bit numbers serves to read these */
#define IN_PLACE(at) \
	((const struct udphdr *)bpf_rdonly_cast(at, bpf_core_type_id_kernel(struct udphdr)))

#define IP_BYTES 20

/* of an IPv4 header, each word as it lies in memory */
struct ip_words {
	u16 version_ihl_tos;
	u16 total_length;
	u16 identification;
	u16 fragment;
	u16 ttl_protocol;
};

static __always_inline bool read_ip(const unsigned char *ip, struct ip_words *words)
{
	if (!bpf_ksym_exists(bpf_rdonly_cast))
		return !bpf_probe_read_kernel(words, sizeof(*words), ip);
	words->version_ihl_tos = IN_PLACE(ip)->source;
	words->fragment = IN_PLACE(ip)->check;
	words->ttl_protocol = IN_PLACE(ip + 8)->source;
	return true;
}

enum verdict {
	OTHER,
	OURS,
	UNREADABLE,
};

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

/* Whether the current thread is one of the server's. */
static __always_inline bool in_server(u32 tgid)
{
	u32 i;

	if (!config.tgid_count)
		return bpf_get_current_task_btf()->nsproxy->net_ns->ns.inum == config.netns_inode;
	/* the verifier knows the count, and keeps only what it takes */
	for (i = 0; i < MAX_TGIDS && i < config.tgid_count; i++)
		if (tgid == config.tgids[i])
			return true;
	return false;
}

static __always_inline void emit_for_server(u64 kind, u32 b)
{
	u64 pid_tgid = bpf_get_current_pid_tgid();
	struct ring *ring;
	u32 cpu;

	if (!in_server(pid_tgid >> 32))
		return;
	cpu = bpf_get_smp_processor_id();
	ring = this_ring(cpu);
	if (ring)
		emit(cpu, ring, bpf_ktime_get_ns(), kind, (u32)pid_tgid, b);
}

#endif
