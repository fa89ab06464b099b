// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * For `taillab noise`: a loop that reads the clock in the kernel, with the CPU's interrupts on or
 * off; and which CPU sends interrupts to which.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/* times between two reads below this many nanoseconds are counted one by one */
#define FINE 4096
/* the most gaps that are kept, with their ends */
#define KEPT 8192
/* most rounds of one call: about 250 ms, and 1 ms with interrupts off */
#define TURNS (1 << 23)
#define TURNS_MASKED (1 << 15)

struct kept {
	u64 from;
	u64 to;
};

/* one loop's account; noise.rs reads it word by word */
struct account {
	u64 counts[FINE];
	u64 gaps; /* all, including those for which `kept` had no room */
	u64 watched_ns;
	struct kept kept[KEPT];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct account);
	__uint(max_entries, 1);
} accounts SEC(".maps");

struct turn {
	u64 last;
	u64 until;
	u64 gap_ns;
};

static long look(u32 i, struct turn *turn)
{
	u64 now = bpf_ktime_get_ns(), passed = now - turn->last, place;
	struct account *account;
	u32 first = 0;

	account = bpf_map_lookup_elem(&accounts, &first);
	if (!account)
		return 1;
	if (passed < FINE)
		account->counts[passed & (FINE - 1)]++;
	if (passed >= turn->gap_ns) {
		place = account->gaps++;
		if (place < KEPT) {
			account->kept[place & (KEPT - 1)].from = turn->last;
			account->kept[place & (KEPT - 1)].to = now;
		}
	}
	turn->last = now;
	return now >= turn->until;
}

/* what user space passes in */
struct request {
	u64 length_ns;
	u64 gap_ns; /* a time of this length or longer is a gap; at most FINE */
};

static __always_inline int watch(const struct request *request, u32 turns)
{
	struct account *account;
	struct turn turn;
	u32 first = 0;
	u64 began;

	account = bpf_map_lookup_elem(&accounts, &first);
	if (!account)
		return 1;
	turn.gap_ns = request->gap_ns;
	began = bpf_ktime_get_ns();
	turn.until = began + request->length_ns;
	turn.last = began;
	bpf_loop(turns, look, &turn, 0);
	account->watched_ns += turn.last - began;
	return 0;
}

SEC("syscall")
int watch_with_interrupts(struct request *request)
{
	return watch(request, TURNS);
}

/* Linux 6.12 or later */
extern void bpf_local_irq_save(unsigned long *flags) __ksym __weak;
extern void bpf_local_irq_restore(unsigned long *flags) __ksym __weak;

SEC("syscall")
int watch_without_interrupts(struct request *request)
{
	unsigned long flags;
	int failed;

	bpf_local_irq_save(&flags);
	failed = watch(request, TURNS_MASKED);
	bpf_local_irq_restore(&flags);
	return failed;
}

/* the last interrupts sent to a CPU; noise.rs reads them word by word */
#define SENDS 4096

struct send {
	u64 which; /* its number, from 1, << 16 | the CPU that sent it; written last */
	u64 at;
};

struct sends {
	u64 count;
	struct send last[SENDS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, u32);
	__type(value, struct sends);
	__uint(max_entries, 1); /* possible CPUs: set before loading */
} asked SEC(".maps");

SEC("tp_btf/ipi_send_cpu")
int BPF_PROG(ipi_sent, unsigned int cpu)
{
	struct sends *sends = bpf_map_lookup_elem(&asked, &cpu);
	u64 number, place;

	if (!sends)
		return 0;
	number = __sync_fetch_and_add(&sends->count, 1);
	place = number & (SENDS - 1);
	sends->last[place].at = bpf_ktime_get_ns();
	/* x86-64 keeps stores in order */
	barrier();
	*(volatile u64 *)&sends->last[place].which =
		(number + 1) << 16 | bpf_get_smp_processor_id();
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
