/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Questions of the server to other servers, over TCP: from when one of its threads last wrote to a connection that is not
 * one of its clients' until the first data that comes back is at the socket.
 *
 * One question is open on a connection at a time. It begins with the last write before the answer, since what was written
 * before that may never be answered. A server that is asked has a number, by which user space finds its address in
 * `upstreams`. The event comes with the answer, on the CPU that receives it.
 */
#ifndef TAILLAB_UPSTREAM_BPF_H
#define TAILLAB_UPSTREAM_BPF_H

#include "packet.bpf.h"

/* servers that are told apart; those after them have the number 0 */
#define MOST_UPSTREAMS 256

/* a number is above the thread's id in an event */
_Static_assert(MOST_UPSTREAMS < 1 << (32 - TID_BITS), "an event has no room for a number");

struct question {
	u64 since;
	u32 tid; /* who wrote last */
	u16 server;
	u16 port; /* of the server's end: another socket may be at the same address of memory later */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, u64); /* the socket */
	__type(value, struct question);
	__uint(max_entries, 1); /* set before loading */
} questions SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct client);
	__type(value, u32); /* its number, from 1 on */
	__uint(max_entries, MOST_UPSTREAMS);
} upstream_numbers SEC(".maps");

/* who is asked */
struct upstream {
	u32 address[4]; /* as in struct client */
	u32 port; /* 0: nobody yet */
	u32 unused;
};

/* whose the numbers are, the first one at 0; mapped by user space */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct upstream);
	__uint(max_entries, MOST_UPSTREAMS);
} upstreams SEC(".maps");

static __always_inline u64 socket_id(const struct sock *sk)
{
	/* as packet_id */
	return (u64)sk - (u64)&config;
}

/* whether the server waits for clients at this port */
static __always_inline bool is_served(u32 port)
{
	u32 i;

	for (i = 0; i < MAX_SERVED && i < config.served_count; i++)
		if (port == config.served[i])
			return true;
	return port == config.port;
}

/* whether both ends have one address */
static __always_inline bool is_to_own_address(const struct sock *sk)
{
	const u32 *own, *peer;

	if (sk->__sk_common.skc_family == AF_INET)
		return sk->__sk_common.skc_daddr == sk->__sk_common.skc_rcv_saddr;
	own = sk->__sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32;
	peer = sk->__sk_common.skc_v6_daddr.in6_u.u6_addr32;
	return own[0] == peer[0] && own[1] == peer[1] && own[2] == peer[2] && own[3] == peer[3];
}

/*
 * Whether the current thread is of the server, and this a connection to another one: neither of one of its clients, nor
 * to itself.
 */
static __always_inline bool is_to_upstream(const struct sock *sk)
{
	u32 family = sk->__sk_common.skc_family;

	if (sk->sk_protocol != IPPROTO_TCP || (family != AF_INET && family != AF_INET6))
		return false;
	if (!sk->__sk_common.skc_dport || !in_server(bpf_get_current_task_btf()))
		return false;
	if (is_served(sk->__sk_common.skc_num))
		return false;
	return !(is_to_own_address(sk) && is_served(bpf_ntohs(sk->__sk_common.skc_dport)));
}

/* the number of a server that is asked; 0 if there are too many */
static __always_inline u32 upstream_number(const struct client *server)
{
	struct ring *first = this_ring(0);
	u32 number, place, *known = bpf_map_lookup_elem(&upstream_numbers, server);
	struct upstream *upstream;

	if (known)
		return *known;
	if (!first || first->asked >= MOST_UPSTREAMS)
		return 0;
	place = __sync_fetch_and_add(&first->asked, 1);
	upstream = bpf_map_lookup_elem(&upstreams, &place);
	if (!upstream)
		return 0;
	number = place + 1;
	if (bpf_map_update_elem(&upstream_numbers, server, &number, BPF_NOEXIST)) {
		/* another CPU was faster: nobody has this number */
		known = bpf_map_lookup_elem(&upstream_numbers, server);
		return known ? *known : 0;
	}
	__builtin_memcpy(upstream->address, server->address, sizeof(upstream->address));
	/* the port last; x86-64 keeps stores in order */
	barrier();
	*(volatile u32 *)&upstream->port = server->port;
	return number;
}

/* The server writes to a socket that is no connection of its clients. */
static __always_inline void note_question(const struct sock *sk)
{
	struct question question = {};
	struct client server;
	u64 id;

	if (!is_to_upstream(sk))
		return;
	id = socket_id(sk);
	server = client_of(sk);
	question.since = bpf_ktime_get_ns();
	question.tid = (u32)bpf_get_current_pid_tgid();
	question.server = upstream_number(&server);
	question.port = sk->__sk_common.skc_num;
	bpf_map_update_elem(&questions, &id, &question, BPF_ANY);
}

/* Data is at a socket that is no connection of the server's clients: is it what the server has asked for? */
static __always_inline void emit_answer(struct ring *ring, const struct sock *sk)
{
	struct ring *first = this_ring(0);
	struct question *question;
	u64 now, id;

	/* most servers ask nobody */
	if (!first || !first->asked)
		return;
	id = socket_id(sk);
	question = bpf_map_lookup_elem(&questions, &id);
	if (!question || question->port != sk->__sk_common.skc_num)
		return;
	now = bpf_ktime_get_ns();
	emit(bpf_get_smp_processor_id(), ring, now, UPSTREAM_ANSWERED, 0,
	     (u32)question->server << TID_BITS | question->tid, length_of(question->since, now));
	bpf_map_delete_elem(&questions, &id);
}

#endif
