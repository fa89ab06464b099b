// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The stamps T1, T2, T4, T5 and T6 of every request of one UDP server, and the
 * thread changes of its CPUs. T3 follows from the others.
 *
 * They run on the server's core for every request, so each one filters before it
 * does anything else and writes at most one event of 16 bytes. Joining events to
 * requests is left to user space.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>

#ifndef __TARGET_ARCH_x86
#error "the programs know system call numbers and store ordering of x86-64 only"
#endif

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define ETH_P_IP 0x0800
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
};

#define MAX_CPUS 1024

/* Filled in before loading; the same layout as Config in object.rs. */
struct config {
	u64 server_cpus[MAX_CPUS / 64];
	u32 slots; /* for each CPU, a power of two */
	u32 ifindex;
	u32 netns_inode;
	u32 tgid;
	u32 port;
	u32 reserved;
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
	*(volatile u64 *)&slot->head = lap | kind << 56 | (now & ((1ULL << 56) - 1));
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
#define UDP_BYTES 8

/* of an IPv4 header, each word as it lies in memory */
struct ip_words {
	u16 version_ihl_tos;
	u16 total_length;
	u16 identification;
	u16 fragment;
	u16 ttl_protocol;
};

/* a UDP header and the first two bytes of its payload */
struct udp_words {
	u16 source;
	u16 destination;
	u16 length;
	u16 checksum;
	u16 id;
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

static __always_inline bool read_udp(const unsigned char *udp, struct udp_words *words)
{
	if (!bpf_ksym_exists(bpf_rdonly_cast))
		return !bpf_probe_read_kernel(words, sizeof(*words), udp);
	words->source = IN_PLACE(udp)->source;
	words->destination = IN_PLACE(udp)->dest;
	words->length = IN_PLACE(udp)->len;
	words->id = IN_PLACE(udp + UDP_BYTES)->source;
	return true;
}

enum verdict {
	OTHER,
	OURS,
	UNREADABLE,
};

/*
 * Whose request or response lies at `ip`, of which `linear` bytes may be read:
 * key = client's port << 16 | request id. What a shorter payload lacks of the id
 * counts as zero, so that every packet of the server has its event.
 */
static __always_inline enum verdict read_key(const unsigned char *ip, u32 linear, bool incoming,
					     u32 *key)
{
	u32 header, payload, id;
	struct udp_words udp;
	struct ip_words words;
	u16 ours, theirs;

	if (linear < IP_BYTES || !read_ip(ip, &words))
		return UNREADABLE;
	if (words.ttl_protocol >> 8 != IPPROTO_UDP || words.fragment & bpf_htons(IP_OFFSET))
		return OTHER;
	header = (words.version_ihl_tos & 0xf) * 4;
	/*
	 * The id of a payload that ends here is read all the same and not used: what
	 * follows the linear part (the skb's shared info) is mapped.
	 */
	if (header < IP_BYTES || linear < header + UDP_BYTES || !read_udp(ip + header, &udp))
		return UNREADABLE;
	ours = incoming ? udp.destination : udp.source;
	theirs = incoming ? udp.source : udp.destination;
	if (bpf_ntohs(ours) != config.port)
		return OTHER;
	payload = bpf_ntohs(udp.length) - UDP_BYTES;
	if (payload > 2)
		payload = 2;
	if (linear < header + UDP_BYTES + payload)
		return UNREADABLE;
	id = bpf_ntohs(udp.id);
	if (payload < 2)
		id = payload ? id & 0xff00 : 0;
	*key = (u32)bpf_ntohs(theirs) << 16 | id;
	return OURS;
}

/* T1: veth and loopback hand the packet to the receiving device, before RPS */
SEC("tp_btf/netif_rx")
int BPF_PROG(packet_in, struct sk_buff *skb)
{
	struct ring *ring;
	enum verdict verdict;
	u32 cpu, key;

	if (!at_server(skb->dev) || skb->protocol != bpf_htons(ETH_P_IP))
		return 0;
	cpu = bpf_get_smp_processor_id();
	ring = this_ring(cpu);
	if (!ring)
		return 0;
	/* skb->data is at the IP header */
	verdict = read_key(skb->data, skb->len - skb->data_len, true, &key);
	if (verdict == OURS)
		/* the clock last: the sojourn begins after this program's work */
		emit(cpu, ring, bpf_ktime_get_ns(), PACKET_IN, packet_id(skb), key);
	else if (verdict == UNREADABLE)
		__sync_fetch_and_add(&ring->unreadable, 1);
	return 0;
}

/* the packet that this CPU now takes through the stack, after RPS: for T2 */
SEC("tp_btf/netif_receive_skb")
int BPF_PROG(packet_received, struct sk_buff *skb)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct ring *ring = this_ring(cpu);

	if (ring)
		/* a foreign packet ends the last one's turn, which may have been dropped */
		ring->current_packet = at_server(skb->dev) ? 1ULL << 32 | packet_id(skb) : 0;
	return 0;
}

static __always_inline bool is_servers(const struct sock *sk)
{
	return sk->__sk_common.skc_num == config.port && sk->sk_protocol == IPPROTO_UDP;
}

static __always_inline void emit_enqueued(const struct sock *sk)
{
	struct ring *ring;
	u64 packet;
	u32 cpu;

	if (!is_servers(sk))
		return;
	cpu = bpf_get_smp_processor_id();
	ring = this_ring(cpu);
	if (!ring)
		return;
	packet = ring->current_packet;
	if (!packet)
		return;
	ring->current_packet = 0;
	emit(cpu, ring, bpf_ktime_get_ns(), ENQUEUED, (u32)packet, 0);
}

/* T2: UDP has queued the current packet and is about to wake the reader */
SEC("tp_btf/sk_data_ready")
int BPF_PROG(enqueued, const struct sock *sk)
{
	emit_enqueued(sk);
	return 0;
}

/*
 * T2 where sk_data_ready does not exist (before Linux 6.3): the beginning of the
 * function that has this tracepoint as its first statement since.
 */
SEC("fentry/sock_def_readable")
int BPF_PROG(to_wake_reader, const struct sock *sk)
{
	emit_enqueued(sk);
	return 0;
}

/* T2 where neither is allowed: the skb is given, but the reader is awake already. */
SEC("fexit/__udp_enqueue_schedule_skb")
int BPF_PROG(enqueued_late, struct sock *sk, struct sk_buff *skb, int ret)
{
	u64 now = bpf_ktime_get_ns();
	struct ring *ring;
	u32 cpu;

	if (ret || !is_servers(sk) || sk->__sk_common.skc_net.net->ns.inum != config.netns_inode)
		return 0;
	cpu = bpf_get_smp_processor_id();
	ring = this_ring(cpu);
	if (ring)
		emit(cpu, ring, now, ENQUEUED, packet_id(skb), 0);
	return 0;
}

static __always_inline void emit_for_server(u64 kind, u32 b)
{
	u64 pid_tgid = bpf_get_current_pid_tgid();
	struct ring *ring;
	u32 cpu;

	if (pid_tgid >> 32 != config.tgid)
		return;
	cpu = bpf_get_smp_processor_id();
	ring = this_ring(cpu);
	if (ring)
		emit(cpu, ring, bpf_ktime_get_ns(), kind, (u32)pid_tgid, b);
}

/*
 * T4: a socket of the server has given a datagram, here one of no bytes included.
 * Unlike sys_exit it costs nothing in the server's other system calls and knows the
 * socket; a call for many messages has one event for each.
 */
SEC("tp_btf/sock_recv_length")
int BPF_PROG(read_done, struct sock *sk, int ret, int flags)
{
	if (ret >= 0 && !(flags & MSG_PEEK) && is_servers(sk))
		emit_for_server(READ_RETURNED, ret);
	return 0;
}

/*
 * System calls of x86-64 that read or write datagrams. read and write are left out:
 * they also serve eventfds and pipes, and a server that answers many clients from
 * one socket needs the address that only these calls give and take.
 */
#define NR_SENDTO 44
#define NR_RECVFROM 45
#define NR_SENDMSG 46
#define NR_RECVMSG 47
#define NR_RECVMMSG 299
#define NR_SENDMMSG 307

/* T4 where sock_recv_length does not exist (before Linux 6.3) */
SEC("tp_btf/sys_exit")
int BPF_PROG(read_returned, struct pt_regs *regs, long ret)
{
	u64 nr;

	if (ret <= 0)
		return 0;
	nr = regs->orig_ax;
	if (nr == NR_RECVFROM || nr == NR_RECVMSG || nr == NR_RECVMMSG)
		emit_for_server(READ_RETURNED, ret);
	return 0;
}

/* T5: the server calls a write */
SEC("tp_btf/sys_enter")
int BPF_PROG(write_called, struct pt_regs *regs, long nr)
{
	if (nr == NR_SENDMSG || nr == NR_SENDTO || nr == NR_SENDMMSG)
		emit_for_server(WRITE_CALLED, 0);
	return 0;
}

/* T6: the driver takes the response */
SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(packet_out, const struct sk_buff *skb, const struct net_device *dev)
{
	const unsigned char *ip;
	enum verdict verdict;
	struct ring *ring;
	u32 cpu, key, linear;
	u64 now;

	if (!at_server(dev) || skb->protocol != bpf_htons(ETH_P_IP))
		return 0;
	/* the clock first: the sojourn ends before this program's work */
	now = bpf_ktime_get_ns();
	cpu = bpf_get_smp_processor_id();
	ring = this_ring(cpu);
	if (!ring)
		return 0;
	/* skb->data is at the link-layer header, of whatever length */
	ip = skb->head + skb->network_header;
	linear = skb->len - skb->data_len - (u32)(ip - skb->data);
	verdict = read_key(ip, linear, false, &key);
	if (verdict == OURS)
		emit(cpu, ring, now, PACKET_OUT, (u32)bpf_get_current_pid_tgid(), key);
	else if (verdict == UNREADABLE)
		__sync_fetch_and_add(&ring->unreadable, 1);
	return 0;
}

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
