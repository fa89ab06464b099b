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

#define SET_BITS 15
#define WAY_BITS 3
#define WAYS (1 << WAY_BITS)
#define PLACE_BITS (SET_BITS + WAY_BITS) /* as in taillab_model */
#define TIMES_BITS 6
#define TIMES_MASK ((1 << TIMES_BITS) - 1)

/* bits of jiffies below the unit in which it is noted when a place was used */
#define USED_SHIFT 6

/* the other end of a connection, or who sent a datagram */
struct client {
	u32 address[4]; /* in network order, IPv4 mapped into IPv6 */
	u32 port;
};

/* known to the verifier by its name */
struct bpf_spin_lock {
	u32 val;
};

struct holder {
	u64 hash; /* without the highest TIMES_BITS, which the set tells; then how often the place was given away */
	u32 used; /* when, as in used_now() */
	u32 unused;
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

static __always_inline bool is_ipv4(const struct client *client)
{
	return !client->address[0] && !client->address[1] &&
	       client->address[2] == bpf_htonl(0xffff);
}

/* a bijection (David Stafford's mix 13 of MurmurHash3's finalizer) */
static __always_inline u64 mixed(u64 x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

static __always_inline u64 hash_of(const struct client *client, u64 seed)
{
	u64 low = (u64)client->address[2] << 32 | client->address[3];

	if (is_ipv4(client))
		return mixed(((u64)client->address[3] << 16 | client->port) ^ seed);
	seed = mixed(((u64)client->address[0] << 32 | client->address[1]) ^ ~seed);
	return mixed(mixed(seed ^ low) ^ client->port);
}

static __always_inline u32 used_now(void)
{
	return bpf_jiffies64() >> USED_SHIFT;
}

static __always_inline u32 number_of(u32 set, u32 way, u64 hash)
{
	return (u32)(hash & TIMES_MASK) << PLACE_BITS | set << WAY_BITS | way;
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
static __noinline u32 give_place(const struct client *client, u32 index, u64 hash, u64 now)
{
	u32 cpu = bpf_get_smp_processor_id(), used = used_now(), most = 0, way = 0, i;
	struct set *set = bpf_map_lookup_elem(&connections, &index);
	struct ring *ring = this_ring(cpu);
	bool is_there = false;
	u64 found = 0;

	if (!ring || !set)
		return 0;
	bpf_spin_lock(&set->lock);
	for (i = 0; i < WAYS; i++) {
		u32 age = used - set->of[i].used;

		/* another CPU was faster */
		if (set->of[i].hash >> TIMES_BITS == hash >> TIMES_BITS) {
			is_there = true;
			way = i;
			break;
		}
		if (age > most) {
			most = age;
			way = i;
		}
	}
	/* the verifier wants to see the bounds */
	barrier_var(way);
	way &= WAYS - 1;
	found = set->of[way].hash;
	if (!is_there) {
		found = hash | ((found + 1) & TIMES_MASK);
		*(volatile u64 *)&set->of[way].hash = found;
		set->of[way].used = used;
	}
	bpf_spin_unlock(&set->lock);
	/* what nobody can read is not said: the next event of the client tries again */
	if (!is_there && !announce(cpu, ring, now, number_of(index, way, found), client))
		*(volatile u64 *)&set->of[way].hash = found & TIMES_MASK;
	return number_of(index, way, found);
}

/* The number of a client's connection. If it is new it is announced, at `now`: not after the event that has it. */
static __always_inline u32 connection_of(const struct ring *ring, u64 now,
					 const struct client *client)
{
	u64 hash = hash_of(client, ring->seed);
	u32 index = hash >> (64 - SET_BITS), used = used_now(), i;
	struct set *set = bpf_map_lookup_elem(&connections, &index);

	if (!set)
		return 0;
	hash <<= TIMES_BITS;
#pragma unroll
	for (i = 0; i < WAYS; i++) {
		u64 held = *(volatile u64 *)&set->of[i].hash;

		if ((held ^ hash) >> TIMES_BITS)
			continue;
		/* seldom: other CPUs read it */
		if (set->of[i].used != used)
			set->of[i].used = used;
		return number_of(index, i, held);
	}
	return give_place(client, index, hash, now ? now : bpf_ktime_get_ns());
}

/* an event of a connection */
static __always_inline void emit_of(u32 cpu, struct ring *ring, u64 now, u64 kind, u32 connection,
				    u32 a, u16 id)
{
	emit(cpu, ring, now, kind, connection >> 16, a, key_of(connection, id));
}

#endif
