/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The stamps of a server of datagrams. */
#include "packet.bpf.h"

#define UDP_BYTES 8

/* bytes of payload that make the id, of a datagram whose header is at `transport` */
static __always_inline u32 id_bytes(const unsigned char *transport)
{
	u32 payload = bpf_ntohs(u16_at(transport + 4)) - UDP_BYTES;

	return payload > 2 ? 2 : payload;
}

/*
 * The request id of a datagram. Missing bytes of it in a short payload count as zero, so that every packet of the server
 * has its event.
 *
 * The id is read even where the payload is too short for it, and then not used: what follows
 * the linear part (the skb's shared info) is mapped.
 */
static __always_inline u16 datagram_id(const unsigned char *transport, u32 bytes)
{
	u16 id = bpf_ntohs(u16_at(transport + UDP_BYTES));

	if (bytes < 2)
		id = bytes ? id & 0xff00 : 0;
	return id;
}

/* the client and the id of the request or response at `place` */
static __always_inline enum verdict read_datagram(struct place place, bool incoming,
						  struct client *client, u16 *id)
{
	struct headers headers = {};
	enum verdict verdict;
	u32 bytes;

	verdict = read_headers(place, IPPROTO_UDP, incoming, &headers);
	if (verdict != OURS)
		return verdict;
	if (headers.linear < UDP_BYTES)
		return UNREADABLE;
	bytes = id_bytes(headers.transport);
	if (headers.linear < UDP_BYTES + bytes)
		return UNREADABLE;
	*id = datagram_id(headers.transport, bytes);
	*client = headers.client;
	return OURS;
}

/* the most datagrams that one packet can have (UDP_MAX_SEGMENTS) */
#define MOST_DATAGRAMS 128

/*
 * Writes an event for each datagram of a packet that holds several of one length (UDP_SEGMENT, GRO), or whose ids are
 * not in its linear part.
 */
static __always_inline enum verdict emit_each(struct sk_buff *skb, struct place place, bool incoming,
					      u32 cpu, struct ring *ring, u64 now, u32 a)
{
	struct headers headers = {};
	struct bpf_dynptr packet;
	enum verdict verdict;
	u32 bytes, each, at, connection;
	__be16 id;
	int i;

	verdict = read_headers(place, IPPROTO_UDP, incoming, &headers);
	if (verdict != OURS)
		return verdict;
	if (!config.payload_copied || !bpf_ksym_exists(bpf_dynptr_from_skb))
		return UNREADABLE;
	bytes = headers.bytes - UDP_BYTES;
	each = bytes_of_each(skb);
	if (!each)
		each = bytes;
	if (bpf_dynptr_from_skb((struct __sk_buff *)skb, 0, &packet))
		return UNREADABLE;
	connection = connection_of(ring, now, &headers.client);
	at = place.before + (u32)(headers.transport - (incoming ? place.ip : skb->data)) + UDP_BYTES;
	bpf_for(i, 0, MOST_DATAGRAMS) {
		if (i * each >= bytes)
			break;
		id = 0;
		if (bytes - i * each >= 2)
			bpf_dynptr_read(&id, 2, &packet, at + i * each, 0);
		else
			bpf_dynptr_read(&id, 1, &packet, at + i * each, 0);
		emit_of(cpu, ring, now, incoming ? PACKET_IN : PACKET_OUT, connection, a,
			bpf_ntohs(id));
	}
	return OURS;
}

static __always_inline int datagram_in(struct sk_buff *skb, struct place place)
{
	struct client client = {};
	enum verdict verdict;
	struct ring *ring;
	u32 cpu, connection;
	u16 id = 0;

	verdict = read_datagram(place, true, &client, &id);
	if (verdict == OTHER)
		return 0;
	cpu = bpf_get_smp_processor_id();
	ring = this_ring(cpu);
	if (!ring)
		return 0;
	if (verdict == OURS && !bytes_of_each(skb)) {
		connection = connection_of(ring, 0, &client);
		/* the clock last: the sojourn begins after this program's work */
		emit_of(cpu, ring, bpf_ktime_get_ns(), PACKET_IN, connection, packet_id(skb), id);
		return 0;
	}
	verdict = emit_each(skb, place, true, cpu, ring, bpf_ktime_get_ns(), packet_id(skb));
	if (verdict == UNREADABLE)
		__sync_fetch_and_add(&ring->unreadable, 1);
	return 0;
}

ARRIVALS(packet_in, datagram_in)

/*
 * The packet that this CPU now takes through the stack, after RPS: for T2. Packets of other
 * servers are noted too, so that an earlier packet, which may have been dropped, is no longer
 * current.
 */
SEC("tp_btf/netif_receive_skb")
int BPF_PROG(packet_received, struct sk_buff *skb)
{
	struct ring *ring = this_ring(bpf_get_smp_processor_id());

	if (ring)
		ring->current_packet = 1ULL << 32 | packet_id(skb);
	return 0;
}

static __always_inline bool is_servers(const struct sock *sk)
{
	return is_servers_socket(sk, IPPROTO_UDP);
}

/* a call on a socket of the server, whichever thread makes it */
static __always_inline void emit_call(u64 kind, u32 b)
{
	emit_now(kind, 0, (u32)bpf_get_current_pid_tgid(), b);
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
	emit(cpu, ring, bpf_ktime_get_ns(), ENQUEUED, 0, packet, 0);
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
 * function whose first statement is this tracepoint in later kernels.
 */
SEC("fentry/sock_def_readable")
int BPF_PROG(to_wake_reader, const struct sock *sk)
{
	emit_enqueued(sk);
	return 0;
}

/* T2 where neither is allowed: the skb is known, but the reader has been woken already. */
SEC("fexit/__udp_enqueue_schedule_skb")
int BPF_PROG(enqueued_late, struct sock *sk, struct sk_buff *skb, int ret)
{
	u64 now = bpf_ktime_get_ns();
	struct ring *ring;
	u32 cpu;

	if (ret || !is_servers(sk))
		return 0;
	cpu = bpf_get_smp_processor_id();
	ring = this_ring(cpu);
	if (ring)
		emit(cpu, ring, now, ENQUEUED, 0, packet_id(skb), 0);
	return 0;
}

/*
 * T4: a socket of the server has given a datagram, even an empty one.
 * Unlike sys_exit it costs nothing in the server's other system calls and knows the
 * socket; a call for many messages has one event for each.
 */
static __always_inline int datagram_read(const struct sock *sk, int ret, int flags)
{
	if (ret < 0 || flags & MSG_PEEK || !is_servers(sk))
		return 0;
	if (config.other_count && in_others(bpf_get_current_task_btf()))
		return 0;
	emit_call(READ_RETURNED, ret);
	return 0;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(read_done, struct sock *sk, int ret, int flags)
{
	return datagram_read(sk, ret, flags);
}

/* T4 where sock_recv_length does not exist (before Linux 6.3), of either family */
static __always_inline int datagram_returned(void *ctx, const struct sock *sk, int flags)
{
	u64 ret = 0;

	/* which argument it is differs between kernels */
	if (bpf_get_func_ret(ctx, &ret))
		return 0;
	return datagram_read(sk, (int)ret, flags);
}

SEC("fexit/udp_recvmsg")
int BPF_PROG(read_from_udp, struct sock *sk, void *msg, u64 len, int flags)
{
	return datagram_returned(ctx, sk, flags);
}

SEC("fexit/udpv6_recvmsg")
int BPF_PROG(read_from_udpv6, struct sock *sk, void *msg, u64 len, int flags)
{
	return datagram_returned(ctx, sk, flags);
}

/*
 * T4 where neither is allowed. read and write are left out, here and for T5: they also
 * serve eventfds and pipes, and a server that answers many clients from one socket needs
 * the address, which only the other calls give and take.
 */
SEC("tp_btf/sys_exit")
int BPF_PROG(read_returned, struct pt_regs *regs, long ret)
{
	u64 nr;

	if (ret <= 0)
		return 0;
	nr = regs->orig_ax;
	if ((nr == NR_RECVFROM || nr == NR_RECVMSG || nr == NR_RECVMMSG) &&
	    !in_32_bit_call(bpf_get_current_task_btf()))
		emit_for_server(READ_RETURNED, 0, ret);
	return 0;
}

/* Another process that shares the port has read a datagram: what its thread answers is not the server's. */
static __always_inline int emit_datagram_read_by_other(const struct sock *sk, int ret)
{
	if (ret >= 0 && is_servers(sk) && in_others(bpf_get_current_task_btf()))
		emit_now(WRITE_CALLED, 0, 1U << 31 | (u32)bpf_get_current_pid_tgid(), 0);
	return 0;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(datagram_read_by_other, struct sock *sk, int ret, int flags)
{
	return emit_datagram_read_by_other(sk, ret);
}

SEC("fexit/udp_recvmsg")
int BPF_PROG(read_from_udp_by_other, struct sock *sk)
{
	u64 ret = 0;

	return bpf_get_func_ret(ctx, &ret) ? 0 : emit_datagram_read_by_other(sk, (int)ret);
}

SEC("fexit/udpv6_recvmsg")
int BPF_PROG(read_from_udpv6_by_other, struct sock *sk)
{
	u64 ret = 0;

	return bpf_get_func_ret(ctx, &ret) ? 0 : emit_datagram_read_by_other(sk, (int)ret);
}

/* T5: the server writes to its socket, by any call; one event for each datagram */
SEC("fentry/udp_sendmsg")
int BPF_PROG(write_to_udp, struct sock *sk)
{
	/* udpv6_sendmsg calls this for an IPv4 address, and has been stamped */
	if (sk->__sk_common.skc_family == AF_INET && is_servers(sk))
		emit_call(WRITE_CALLED, 0);
	return 0;
}

SEC("fentry/udpv6_sendmsg")
int BPF_PROG(write_to_udpv6, struct sock *sk)
{
	if (is_servers(sk))
		emit_call(WRITE_CALLED, 0);
	return 0;
}

/*
 * T5 where fentry is not allowed, at the root of the cgroup tree: a socket is about to send a
 * datagram to an address in the call. It allows every send.
 */
static __always_inline int datagram_sent(const struct bpf_sock_addr *ctx)
{
	const struct sock *sk = bpf_rdonly_cast((void *)ctx->sk,
						bpf_core_type_id_kernel(struct sock));

	if (is_servers(sk))
		emit_call(WRITE_CALLED, 0);
	return 1;
}

SEC("cgroup/sendmsg4")
int datagram_sent_v4(struct bpf_sock_addr *ctx)
{
	return datagram_sent(ctx);
}

SEC("cgroup/sendmsg6")
int datagram_sent_v6(struct bpf_sock_addr *ctx)
{
	return datagram_sent(ctx);
}

/* T5 where neither is allowed: a call for many messages is stamped once, as it begins */
SEC("tp_btf/sys_enter")
int BPF_PROG(write_called, struct pt_regs *regs, long nr)
{
	if ((nr == NR_SENDMSG || nr == NR_SENDTO || nr == NR_SENDMMSG) &&
	    !in_32_bit_call(bpf_get_current_task_btf()))
		emit_for_server(WRITE_CALLED, 0, 0);
	return 0;
}

/* operations of io_uring */
#define IORING_OP_WRITEV 2
#define IORING_OP_WRITE_FIXED 5
#define IORING_OP_SENDMSG 9
#define IORING_OP_WRITE 23
#define IORING_OP_SEND 26
#define IORING_OP_SPLICE 30
#define IORING_OP_SEND_ZC 47
#define IORING_OP_SENDMSG_ZC 48

/* together with sys_enter, for either transport: io_uring makes no system call for each write */
SEC("tp_btf/io_uring_submit_req")
int BPF_PROG(ring_write_called, struct io_kiocb *request)
{
	u8 op = request->opcode;

	if (op == IORING_OP_SEND || op == IORING_OP_SENDMSG || op == IORING_OP_WRITE ||
	    op == IORING_OP_WRITEV || op == IORING_OP_WRITE_FIXED || op == IORING_OP_SPLICE ||
	    op == IORING_OP_SEND_ZC || op == IORING_OP_SENDMSG_ZC)
		emit_for_server(WRITE_CALLED, 0, 0);
	return 0;
}

/* a response leaves */
static __always_inline int datagram_out(struct sk_buff *skb, const struct net_device *dev)
{
	struct waiting_datagram waiting = {};
	struct client client = {};
	enum verdict verdict;
	struct ring *ring;
	u32 cpu, connection;
	u64 now, packet;
	u16 id = 0;

	if (!may_be_ip(skb->protocol) || !at_server(dev))
		return 0;
	/* the clock first: the sojourn ends before this program's work */
	now = bpf_ktime_get_ns();
	verdict = read_datagram(place_out(skb), false, &client, &id);
	if (verdict == OTHER)
		return 0;
	cpu = bpf_get_smp_processor_id();
	ring = this_ring(cpu);
	if (!ring)
		return 0;
	if (verdict != OURS || bytes_of_each(skb)) {
		/* of what is cut into several packets, the time of handing down has to do */
		verdict = emit_each(skb, place_out(skb), false, cpu, ring, now,
				    (u32)bpf_get_current_pid_tgid());
		if (verdict == UNREADABLE)
			__sync_fetch_and_add(&ring->unreadable, 1);
		return 0;
	}
	connection = connection_of(ring, now, &client);
	if (config.queues && holds_back(dev)) {
		waiting.key = key_of(connection, id);
		waiting.number = number_at(now);
		packet = (u64)skb - (u64)&config;
		bpf_map_update_elem(&waiting_datagrams, &packet, &waiting, BPF_ANY);
		emit_of(cpu, ring, now, DEVICE_QUEUE, connection, waiting.number, id);
	}
	emit_of(cpu, ring, now, PACKET_OUT, connection, (u32)bpf_get_current_pid_tgid(), id);
	return 0;
}

/* T6 where nothing holds packets back: the driver takes the response */
SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(packet_out, struct sk_buff *skb, const struct net_device *dev)
{
	return datagram_out(skb, dev);
}

/* Where a queue may hold it back: UDP hands it down, in its sender's call. */
SEC("tp_btf/net_dev_queue")
int BPF_PROG(packet_handed_down, struct sk_buff *skb)
{
	return datagram_out(skb, skb->dev);
}

/* T6 then: the driver takes what was handed down. */
SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(packet_left, const struct sk_buff *skb, const struct net_device *dev)
{
	const struct waiting_datagram *waiting;
	struct client client = {};
	struct ring *ring;
	u32 cpu, connection;
	u64 now, packet;
	u16 id = 0;

	if (!may_be_ip(skb->protocol) || !holds_back(dev) || !at_server(dev))
		return 0;
	now = bpf_ktime_get_ns();
	if (read_datagram(place_out(skb), false, &client, &id) != OURS)
		return 0;
	packet = (u64)skb - (u64)&config;
	waiting = bpf_map_lookup_elem(&waiting_datagrams, &packet);
	if (!waiting)
		return 0;
	cpu = bpf_get_smp_processor_id();
	ring = this_ring(cpu);
	if (!ring)
		return 0;
	connection = connection_of(ring, now, &client);
	if (waiting->key == key_of(connection, id))
		emit_of(cpu, ring, now, DEVICE_QUEUE, connection, waiting->number | LEFT, id);
	return 0;
}
