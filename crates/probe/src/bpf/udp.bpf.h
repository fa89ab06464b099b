/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The stamps of a server of datagrams. */
#include "common.bpf.h"

#define UDP_BYTES 8

/* a UDP header and the first two bytes of its payload */
struct udp_words {
	u16 source;
	u16 destination;
	u16 length;
	u16 checksum;
	u16 id;
};

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
 * T4 where sock_recv_length does not exist (before Linux 6.3). read and write are left
 * out, here and for T5: they also serve eventfds and pipes, and a server that answers
 * many clients from one socket needs the address that only these calls give and take.
 */
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
