/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Numbers of connections (over UDP: of clients), and who is at the other end of each.
 *
 * A hash of the client's address and port chooses a set of places; each place has the rest of the hash of who holds it.
 * For IPv4 the hash is a bijection, so no two clients are taken for one. Those of IPv6 are told apart by 64 bits of it,
 * and its seed is secret. Whoever finds no place takes the one of its set that nobody has used for longest.
 *
 * A number is the place, and how often that was given away: a number that is in use is never given to another client,
 * and what a CPU still says of the old one is not taken for the new one. It is announced with the client's address when
 * the place is given away, before any other event on this CPU has it.
 *
 * The server's own address is no part of it: on the way it may be another one than at the socket (address translation).
 * So a client that uses one port for connections to two addresses of the server at once has one number.
 */
#ifndef TAILLAB_CONNECTIONS_BPF_H
#define TAILLAB_CONNECTIONS_BPF_H

#include "common.bpf.h"
#include "table.h"

/*
 * Bits of jiffies below the unit in which it is noted when a place was used: 8 to 80 ms. Of places that were last used
 * in the same unit, any may be given away, so as many new clients as a set has places must not come within one.
 */
#define USED_SHIFT 3

/* known to the verifier by its name */
struct bpf_spin_lock {
	u32 val;
};

struct set {
	struct holder of[WAYS];
	struct bpf_spin_lock lock; /* for giving away a place */
	u32 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, u32);
	__type(value, struct set);
	__uint(max_entries, 1 << SET_BITS);
} connections SEC(".maps");

static __always_inline void set_ipv4(struct client *client, __be32 address)
{
	client->address[0] = 0;
	client->address[1] = 0;
	client->address[2] = bpf_htonl(0xffff);
	client->address[3] = address;
}

static __always_inline u32 used_now(void)
{
	return bpf_jiffies64() >> USED_SHIFT;
}

/* the second value of an event of a connection; the highest 8 bits of its number are in the event's extra bits */
static __always_inline u32 key_of(u32 connection, u16 id)
{
	return connection << 16 | id;
}

/* Says whose a number is; returns whether there was room for that. */
static __always_inline bool announce(u32 cpu, struct ring *ring, u64 now, u32 connection,
				     const struct client *client)
{
	u32 w0 = bpf_ntohl(client->address[0]), w1 = bpf_ntohl(client->address[1]);
	u32 w2 = bpf_ntohl(client->address[2]), w3 = bpf_ntohl(client->address[3]);
	u32 high = connection >> 16;

	if (is_ipv4(client))
		return emit(cpu, ring, now, ANNOUNCED, high, w3, key_of(connection, client->port));
	return emit(cpu, ring, now, ANNOUNCED_1, high, w0, key_of(connection, client->port)) &&
	       emit(cpu, ring, now, ANNOUNCED_2, high, w1 << 16 | w2 >> 16,
		    key_of(connection, w1 >> 16)) &&
	       emit(cpu, ring, now, ANNOUNCED_3, high, w3, key_of(connection, w2));
}

/* Gives a place of this set to a client, and announces it at `now`. */
static __noinline u32 give_place(const struct client *client, u32 index, u64 rest, u64 now)
{
	u32 cpu = bpf_get_smp_processor_id(), used = used_now(), way;
	struct set *set = bpf_map_lookup_elem(&connections, &index);
	struct ring *ring = this_ring(cpu);
	bool is_there; /* another CPU was faster */
	u64 held;

	if (!ring || !set)
		return 0;
	bpf_spin_lock(&set->lock);
	way = way_of(set->of, rest, used, &is_there);
	held = set->of[way].hash;
	if (!is_there) {
		held = given_after(held, rest);
		*(volatile u64 *)&set->of[way].hash = held;
		set->of[way].used = used;
	}
	bpf_spin_unlock(&set->lock);
	/* what nobody can read is not said: the next event of the client tries again */
	if (!is_there && !announce(cpu, ring, now, number_of(index, way, held), client))
		*(volatile u64 *)&set->of[way].hash = taken_back(held);
	return number_of(index, way, held);
}

/* The number of a client's connection. If it is new it is announced, at `now`: not after the event that has it. */
static __always_inline u32 connection_of(const struct ring *ring, u64 now,
					 const struct client *client)
{
	u64 hash = hash_of(client, ring->seed), rest = rest_of(hash);
	u32 index = set_of(hash), used = used_now(), i;
	struct set *set = bpf_map_lookup_elem(&connections, &index);

	if (!set)
		return 0;
#pragma unroll
	for (i = 0; i < WAYS; i++) {
		u64 held = *(volatile u64 *)&set->of[i].hash;

		if (!is_held_by(held, rest))
			continue;
		/* seldom: other CPUs read it */
		if (set->of[i].used != used)
			set->of[i].used = used;
		return number_of(index, i, held);
	}
	return give_place(client, index, rest, now ? now : bpf_ktime_get_ns());
}

/* an event of a connection */
static __always_inline void emit_of(u32 cpu, struct ring *ring, u64 now, u64 kind, u32 connection,
				    u32 a, u16 id)
{
	emit(cpu, ring, now, kind, connection >> 16, a, key_of(connection, id));
}

#endif
