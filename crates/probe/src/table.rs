//! Tests of the table of connections: `bpf/table.h`, compiled for this machine.

use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::mem::transmute;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::sync::OnceLock;

use proptest::prelude::*;
use taillab_model::PLACE_BITS;

/// What the header asks of whoever includes it, and its functions with external linkage.
const WRAPPER: &str = r#"
#include <stdbool.h>
#include <stdint.h>
typedef uint64_t u64;
typedef uint32_t u32;
typedef int32_t s32;
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define barrier_var(x) asm volatile("" : "+r"(x))
#define bpf_htonl(x) __builtin_bswap32(x)
#include "table.h"
const u32 place_bits = PLACE_BITS, ways = WAYS, set_bits = SET_BITS, times_bits = TIMES_BITS;
u64 call_mixed(u64 x) { return mixed(x); }
u64 call_hash_of(const struct client *client, u64 seed) { return hash_of(client, seed); }
u32 call_set_of(u64 hash) { return set_of(hash); }
u64 call_rest_of(u64 hash) { return rest_of(hash); }
u32 call_number_of(u32 set, u32 way, u64 held) { return number_of(set, way, held); }
u64 call_given_after(u64 held, u64 rest) { return given_after(held, rest); }
u64 call_taken_back(u64 held) { return taken_back(held); }
bool call_is_held_by(u64 held, u64 rest) { return is_held_by(held, rest); }
u32 call_way_of(const struct holder *of, u64 rest, u32 used, bool *is_there)
{
	return way_of(of, rest, used, is_there);
}
"#;

/// As `struct client`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Client {
    address: [u32; 4],
    port: u32,
}

/// As `struct holder`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Holder {
    hash: u64,
    used: u32,
    _unused: u32,
}

type Symbol = *mut libc::c_void;
type UnaryFunction = extern "C" fn(u64) -> u64;
type BinaryFunction = extern "C" fn(u64, u64) -> u64;
type SetFunction = extern "C" fn(u64) -> u32;
type HashFunction = unsafe extern "C" fn(*const Client, u64) -> u64;
type NumberFunction = extern "C" fn(u32, u32, u64) -> u32;
type HolderPredicate = extern "C" fn(u64, u64) -> bool;
type WayFunction = unsafe extern "C" fn(*const Holder, u64, u32, *mut bool) -> u32;

/// The functions and constants of the header.
struct Header {
    place_bits: u32,
    ways: u32,
    set_bits: u32,
    times_bits: u32,
    mixed: UnaryFunction,
    hash_of: HashFunction,
    set_of: SetFunction,
    rest_of: UnaryFunction,
    number_of: NumberFunction,
    given_after: BinaryFunction,
    taken_back: UnaryFunction,
    is_held_by: HolderPredicate,
    way_of: WayFunction,
}

impl Header {
    /// Compiles and loads it.
    fn load() -> Self {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let (source, library) = (
            folder.path().join("table.c"),
            folder.path().join("table.so"),
        );
        std::fs::write(&source, WRAPPER).expect("room for a source file");
        let clang = std::env::var_os("CLANG").unwrap_or_else(|| "clang".into());
        let headers = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/src/bpf");
        let compiled = Command::new(clang)
            .args(["-O2", "-Wall", "-Werror", "-shared", "-fPIC", headers, "-o"])
            .args([&library, &source])
            .status();
        assert!(compiled.expect("clang").success());
        let path = CString::new(library.as_os_str().as_bytes()).expect("a path without NUL");
        // SAFETY: the path ends with a zero, and the library has no constructors. It is never unloaded.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null());
        let symbol = |name: &str| {
            let name = CString::new(name).expect("a name without NUL");
            // SAFETY: the library is loaded, and the name ends with a zero.
            let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
            assert!(!symbol.is_null(), "{name:?}");
            symbol
        };
        // SAFETY: the symbol is a constant of this type, which is never unloaded.
        let constant = |name| unsafe { *symbol(name).cast::<u32>() };
        // SAFETY: each symbol is a function with these parameters and this result in `WRAPPER`; `struct client` and
        // `struct holder` are laid out as their twins here.
        unsafe {
            Self {
                place_bits: constant("place_bits"),
                ways: constant("ways"),
                set_bits: constant("set_bits"),
                times_bits: constant("times_bits"),
                mixed: transmute::<Symbol, UnaryFunction>(symbol("call_mixed")),
                hash_of: transmute::<Symbol, HashFunction>(symbol("call_hash_of")),
                set_of: transmute::<Symbol, SetFunction>(symbol("call_set_of")),
                rest_of: transmute::<Symbol, UnaryFunction>(symbol("call_rest_of")),
                number_of: transmute::<Symbol, NumberFunction>(symbol("call_number_of")),
                given_after: transmute::<Symbol, BinaryFunction>(symbol("call_given_after")),
                taken_back: transmute::<Symbol, UnaryFunction>(symbol("call_taken_back")),
                is_held_by: transmute::<Symbol, HolderPredicate>(symbol("call_is_held_by")),
                way_of: transmute::<Symbol, WayFunction>(symbol("call_way_of")),
            }
        }
    }

    fn hash(&self, client: &Client, seed: u64) -> u64 {
        // SAFETY: the function only reads the client.
        unsafe { (self.hash_of)(client, seed) }
    }
}

fn header() -> &'static Header {
    static HEADER: OnceLock<Header> = OnceLock::new();
    HEADER.get_or_init(Header::load)
}

fn ipv4(address: u32, port: u16) -> Client {
    Client {
        address: [0, 0, 0xffff_u32.to_be(), address],
        port: port.into(),
    }
}

/// One set of the table, as `connection_of` uses it.
struct Set {
    number: u32,
    of: [Holder; 8],
    /// How often each place was given away.
    given: [u32; 8],
}

impl Set {
    fn new(number: u32) -> Self {
        Self {
            number,
            of: [Holder::default(); 8],
            given: [0; 8],
        }
    }

    fn place_of(&self, rest: u64) -> Option<usize> {
        let mut holders = self.of.iter();
        holders.position(|holder| (header().is_held_by)(holder.hash, rest))
    }

    /// The number of the client with this rest of its hash at this time, and whether it was announced; `fits` says
    /// whether there is room for an announcement.
    fn number_of(&mut self, rest: u64, used: u32, fits: bool) -> (u32, bool) {
        let header = header();
        let number = |way: usize, held| (header.number_of)(self.number, way as u32, held);
        if let Some(way) = self.place_of(rest) {
            self.of[way].used = used;
            return (number(way, self.of[way].hash), false);
        }
        let mut is_there = true;
        // SAFETY: the function reads `WAYS` holders, which are there, and writes one `bool`.
        let way = unsafe { (header.way_of)(self.of.as_ptr(), rest, used, &raw mut is_there) };
        assert!(!is_there);
        let way = way as usize;
        let held = (header.given_after)(self.of[way].hash, rest);
        self.of[way].hash = held;
        self.of[way].used = used;
        self.given[way] += 1;
        let number = number(way, held);
        if !fits {
            self.of[way].hash = (header.taken_back)(held);
        }
        (number, fits)
    }
}

/// The inverse of x ^ x >> by.
fn unshifted(y: u64, by: u32) -> u64 {
    let mut x = y;
    for _ in 0..64 / by {
        x = y ^ x >> by;
    }
    x
}

/// The inverse of an odd factor modulo 2⁶⁴, by Newton's iteration.
fn inverse(factor: u64) -> u64 {
    let mut found = factor;
    for _ in 0..6 {
        found = found.wrapping_mul(2_u64.wrapping_sub(factor.wrapping_mul(found)));
    }
    found
}

/// The inverse of `mixed`.
fn unmixed(y: u64) -> u64 {
    let x = unshifted(y, 31).wrapping_mul(inverse(0x94d0_49bb_1331_11eb));
    let x = unshifted(x, 27).wrapping_mul(inverse(0xbf58_476d_1ce4_e5b9));
    unshifted(x, 30)
}

#[test]
fn a_place_has_as_many_bits_as_readers_take_for_it() {
    let header = header();
    assert_eq!(header.place_bits, PLACE_BITS);
    assert_eq!(header.ways as usize, Set::new(0).of.len());
    assert_eq!(header.place_bits, header.set_bits + header.ways.ilog2());
    assert_eq!(
        PLACE_BITS + header.times_bits,
        24,
        "the bits of a number in an event"
    );
}

proptest! {
    #[test]
    fn mixing_loses_nothing(x: u64) {
        prop_assert_eq!(unmixed((header().mixed)(x)), x);
    }

    /// From the set and what its holder has, the client can be told: no other one has both.
    #[test]
    fn two_clients_of_ipv4_never_share_a_set_and_a_rest(address: u32, port: u16, seed: u64, times in 0_u64..64) {
        let header = header();
        let hash = header.hash(&ipv4(address, port), seed);
        let (set, rest) = (u64::from((header.set_of)(hash)), (header.rest_of)(hash));
        let held = rest | times;
        let again = set << (64 - header.set_bits) | held >> header.times_bits;
        prop_assert_eq!(again, hash);
        prop_assert_eq!(unmixed(again) ^ seed, u64::from(address) << 16 | u64::from(port));
        // a neighbour has another hash, however the seed is drawn
        let other = header.hash(&ipv4(address, port ^ 1), seed);
        prop_assert_ne!(other, hash);
    }

    /// All of an address of IPv6 counts, and so does the port.
    #[test]
    fn each_bit_of_an_ipv6_client_changes_its_hash(address: [u32; 4], port: u16, seed: u64, bit in 0_usize..144) {
        let client = Client { address, port: port.into() };
        let mut other = client;
        match bit.checked_sub(128) {
            Some(bit) => other.port ^= 1 << bit,
            None => other.address[bit / 32] ^= 1 << (bit % 32),
        }
        prop_assert_ne!(header().hash(&client, seed), header().hash(&other, seed));
    }

    /// Clients of one set come and go in any order; some announcements find no room, and the clocks of two CPUs differ
    /// by up to a unit.
    #[test]
    fn a_number_that_is_in_use_belongs_to_one_client_and_stays(
        set in 0_u32..1 << 15,
        steps in prop::collection::vec((1_u64..30, 0_u32..3, any::<bool>(), prop::bool::weighted(0.9)), 1..400),
    ) {
        let mut table = Set::new(set);
        // the number of each client, and whose each number was last and how often its place had been given away then
        let mut numbers: HashMap<u64, u32> = HashMap::new();
        let mut owners: HashMap<u32, (u64, u32)> = HashMap::new();
        // the clients in the order in which they came
        let mut uses: Vec<u64> = Vec::new();
        let mut now = 1_000_000;
        for (client, passes, is_ahead, fits) in steps {
            // a unit passes between two uses, so that their order is known; another CPU may see the next one
            now += 2 + passes;
            let used = now + u32::from(is_ahead);
            let rest = client << 30;
            let since = uses.iter().rev().take_while(|other| **other != client);
            let since: HashSet<u64> = since.copied().collect();
            let has_place = table.place_of(rest).is_some();
            let (mut number, announced) = table.number_of(rest, used, fits);
            if has_place {
                prop_assert_eq!((Some(&number), announced), (numbers.get(&client), false));
            } else {
                let is_known = numbers.contains_key(&client);
                prop_assert!(!is_known || since.len() >= 8, "it was used more lately than eight others");
                prop_assert_eq!(announced, fits);
            }
            if !has_place && !fits {
                prop_assert_eq!(table.place_of(rest), None);
                let again = table.number_of(rest, used, true);
                prop_assert!(again.1, "its next event announces it");
                number = again.0;
            }
            prop_assert_eq!((number & ((1 << PLACE_BITS) - 1)) >> 3, set);
            if !has_place {
                let given = table.given[number as usize & 7];
                if let Some((other, before)) = owners.insert(number, (client, given)) {
                    prop_assert!(given - before >= 64, "{other} had {number}, now {client}");
                }
            }
            numbers.insert(client, number);
            uses.push(client);
            let held = table.of.iter().enumerate();
            let held = held.filter(|(_, holder)| holder.hash >> header().times_bits != 0);
            let held = held.map(|(way, it)| (header().number_of)(set, way as u32, it.hash));
            prop_assert_eq!(held.filter(|other| *other == number).count(), 1);
        }
    }

    /// Another CPU has just noted a use, a unit ahead of this one's clock: its client keeps its place.
    #[test]
    fn a_clock_that_is_behind_takes_no_place_that_was_just_used(ahead in 0_usize..8) {
        let mut table = Set::new(3);
        let mut numbers = [0; 8];
        for (place, number) in numbers.iter_mut().enumerate() {
            (*number, _) = table.number_of((place as u64 + 1) << 30, 1_000 + place as u32, true);
        }
        let rest = |place: usize| (place as u64 + 1) << 30;
        table.number_of(rest(ahead), 5_001, true);
        table.number_of(99 << 30, 5_000, true);
        prop_assert_eq!(table.number_of(rest(ahead), 5_001, true), (numbers[ahead], false));
    }
}
