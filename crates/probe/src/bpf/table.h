/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The table of connections without the kernel: hashes, numbers, and whose place is given away. Tests compile it for the
 * machine, so it calls no helper and reads no map; whoever includes it has the types and __always_inline, barrier_var and
 * bpf_htonl.
 */
#ifndef TAILLAB_TABLE_H
#define TAILLAB_TABLE_H

#define SET_BITS 15
#define WAY_BITS 3
#define WAYS (1 << WAY_BITS)
#define PLACE_BITS (SET_BITS + WAY_BITS) /* as in taillab_model */
#define TIMES_BITS 6
#define TIMES_MASK ((1 << TIMES_BITS) - 1)

/* set and rest together are the whole hash */
_Static_assert(SET_BITS + (64 - TIMES_BITS) >= 64, "two clients could be taken for one");

/* the other end of a connection, or who sent a datagram */
struct client {
	u32 address[4]; /* in network order, IPv4 mapped into IPv6 */
	u32 port;
};

struct holder {
	u64 hash; /* without the highest TIMES_BITS, which the set tells; then how often the place was given away */
	u32 used; /* when, as in used_now() */
	u32 unused;
};

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

static __always_inline u32 set_of(u64 hash)
{
	return hash >> (64 - SET_BITS);
}

/* a hash as its holder has it: as if the place had never been given away */
static __always_inline u64 rest_of(u64 hash)
{
	return hash << TIMES_BITS;
}

static __always_inline bool is_held_by(u64 held, u64 rest)
{
	return !((held ^ rest) >> TIMES_BITS);
}

static __always_inline u32 number_of(u32 set, u32 way, u64 held)
{
	return (u32)(held & TIMES_MASK) << PLACE_BITS | set << WAY_BITS | way;
}

/*
 * The place of a client in its set, if it has one by now (then `is_there`); or else one that nobody holds, or the one
 * that nobody has used for longest. The clock of another CPU may be ahead: what is used in the future is used now.
 */
static __always_inline u32 way_of(const struct holder *of, u64 rest, u32 used, bool *is_there)
{
	u32 way = 0, i;
	s32 most = -1;

	*is_there = false;
	for (i = 0; i < WAYS; i++) {
		bool is_free = !(of[i].hash >> TIMES_BITS);
		s32 age = is_free ? 0x7fffffff : (s32)(used - of[i].used);

		if (is_held_by(of[i].hash, rest)) {
			*is_there = true;
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
	return way & (WAYS - 1);
}

/* what the holder of a place has after this one, if it gets the place */
static __always_inline u64 given_after(u64 held, u64 rest)
{
	return rest | ((held + 1) & TIMES_MASK);
}

/* nobody holds the place, since the announcement found no room; how often it was given away is known */
static __always_inline u64 taken_back(u64 held)
{
	return held & TIMES_MASK;
}

#endif
