//! Large primes, and the numbers of RSA and DSA keys.
//!
//! The search begins at a random number and continues in steps of equal size. A sieve removes candidates with a small
//! factor, and the Miller-Rabin test with random bases checks the others. This code does not run in constant time: an
//! attacker cannot measure the generation of a key, and ring uses the key.

use num_bigint::BigUint;

use crate::base::random;

/// Called between two attempts; true to give up.
pub(super) type Stopped<'s> = &'s dyn Fn() -> bool;

/// The sieve removes smaller factors without a modular power, which costs as much as thousands of sieve steps.
const SMALL: u16 = 1 << 14;
/// Candidates after a random number before the next random number: several times the usual distance to a prime.
const SPAN: usize = 1 << 13;
/// The usual public exponent.
const EXPONENT: u32 = 65_537;
/// From this length on, fewer rounds suffice, because composite random numbers rarely pass the test
/// (FIPS 186-5, table B.1).
const LONG_BITS: usize = 1_024;
const ROUNDS_LONG: usize = 5;
const ROUNDS: usize = 40;

/// The numbers of a PKCS#1 key in its order: modulus, exponents, primes, and the values derived from them.
pub(super) fn rsa(bits: usize, stopped: Stopped<'_>) -> Option<[BigUint; 8]> {
    let one = BigUint::from(1u32);
    let e = BigUint::from(EXPONENT);
    loop {
        let p = factor(bits - bits / 2, stopped)?;
        let q = factor(bits / 2, stopped)?;
        let (p, q) = if p < q { (q, p) } else { (p, q) };
        let n = &p * &q;
        // Primes that are close to each other are easily found from their product. Random primes are never that close.
        if (&p - &q).bits() + 100 < p.bits() || n.bits() != u64::try_from(bits).ok()? {
            continue;
        }
        let (p_less, q_less) = (&p - &one, &q - &one);
        let Some(d) = e.modinv(&(&p_less * &q_less)) else { continue };
        let Some(inverse) = q.modinv(&p) else { continue };
        let (dp, dq) = (&d % &p_less, &d % &q_less);
        return Some([n, e, d, p, q, dp, dq, inverse]);
    }
}

/// The numbers of a DSA key of 2048 and 256 bits: p, q, g, the public key, and the private key.
pub(super) fn dsa(stopped: Stopped<'_>) -> Option<[BigUint; 5]> {
    let one = BigUint::from(1u32);
    let q = loop {
        if let Some(q) = search(&(number(256, 1) | &one), &BigUint::from(2u32), stopped)? {
            break q;
        }
    };
    let step = &q << 1;
    let p = loop {
        let random = number(2_048, 1);
        let first = &random - &random % &step + &one;
        if let Some(p) = search(&first, &step, stopped)?.filter(|p| p.bits() == 2_048) {
            break p;
        }
    };
    let g = BigUint::from(2u32).modpow(&((&p - &one) / &q), &p);
    let x = number(320, 0) % (&q - &one) + &one;
    let y = g.modpow(&x, &p);
    Some([p, q, g, y, x])
}

/// A prime of this length for RSA. Its two highest bits are set, so that the product of two has twice the length.
fn factor(bits: usize, stopped: Stopped<'_>) -> Option<BigUint> {
    let (one, two) = (BigUint::from(1u32), BigUint::from(2u32));
    loop {
        let found = search(&(number(bits, 2) | &one), &two, stopped)?;
        // The exponent must have an inverse.
        let fits = |p: &BigUint| p.bits() == bits as u64 && p % EXPONENT != one;
        if let Some(p) = found.filter(fits) {
            return Some(p);
        }
    }
}

/// A random number below 2^bits with this many of its highest bits set.
fn number(bits: usize, ones: usize) -> BigUint {
    let mut number = BigUint::from_bytes_be(&random::vec(bits.div_ceil(8))) >> (bits.div_ceil(8) * 8 - bits);
    (bits - ones..bits).for_each(|bit| number.set_bit(bit as u64, true));
    number
}

/// The first prime of `first`, `first + step` and so on; `Some(None)` if it is far away, `None` if the caller gave up.
fn search(first: &BigUint, step: &BigUint, stopped: Stopped<'_>) -> Option<Option<BigUint>> {
    let crossed = cross_out(first, step);
    for (index, _) in crossed.iter().enumerate().filter(|(_, is_out)| !**is_out) {
        if stopped() {
            return None;
        }
        let candidate = first + step * index;
        if is_prime(&candidate) {
            return Some(Some(candidate));
        }
    }
    Some(None)
}

/// The candidates with a small factor. All are odd; 2 is the only small factor of the step.
fn cross_out(first: &BigUint, step: &BigUint) -> Vec<bool> {
    let mut crossed = vec![false; SPAN];
    for prime in small_primes() {
        let rest = |number: &BigUint| (number % prime).iter_u32_digits().next().unwrap_or(0);
        let (rest, step) = (rest(first), rest(step));
        let prime = u32::from(prime);
        // first + index * step is 0 modulo the prime.
        let index = u64::from(prime - rest) * inverse(step, prime) % u64::from(prime);
        let index = usize::try_from(index).unwrap_or(SPAN);
        crossed.iter_mut().skip(index).step_by(prime as usize).for_each(|is_out| *is_out = true);
    }
    crossed
}

/// The inverse modulo a small prime, by Fermat's little theorem.
fn inverse(number: u32, prime: u32) -> u64 {
    let (prime, mut exponent) = (u64::from(prime), prime - 2);
    let (mut power, mut out) = (u64::from(number) % prime, 1);
    while exponent > 0 {
        if exponent & 1 == 1 {
            out = out * power % prime;
        }
        power = power * power % prime;
        exponent >>= 1;
    }
    out
}

/// The odd primes below [`SMALL`].
fn small_primes() -> Vec<u16> {
    let mut primes: Vec<u16> = Vec::new();
    for candidate in (3..SMALL).step_by(2) {
        let mut divisors = primes.iter().take_while(|p| **p * **p <= candidate);
        if divisors.all(|p| candidate % p != 0) {
            primes.push(candidate);
        }
    }
    primes
}

/// The Miller-Rabin test of an odd number with random bases.
fn is_prime(n: &BigUint) -> bool {
    let one = BigUint::from(1u32);
    let last = n - &one;
    let Some(twos) = last.trailing_zeros() else { return false };
    let odd = &last >> twos;
    let bits = usize::try_from(n.bits()).unwrap_or(usize::MAX);
    let rounds = if bits >= LONG_BITS { ROUNDS_LONG } else { ROUNDS };
    (0..rounds).all(|_| {
        // From 2 to n - 2.
        let base = number(bits + 64, 0) % (n - 3u32) + 2u32;
        let mut power = base.modpow(&odd, n);
        if power == one || power == last {
            return true;
        }
        for _ in 1..twos {
            power = &power * &power % n;
            if power == last {
                return true;
            }
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn big(n: u32) -> BigUint {
        BigUint::from(n)
    }

    #[test]
    fn the_list_of_small_primes_is_complete() {
        let primes = small_primes();
        assert_eq!(primes[..9], [3, 5, 7, 11, 13, 17, 19, 23, 29]);
        assert_eq!((primes.len(), primes.last()), (1_899, Some(&16_381)), "there are 1,900 with 2");
    }

    #[test]
    fn only_multiples_of_small_primes_are_removed() {
        let primes = small_primes();
        for (first, step) in [(100_003u32, 2u32), (1_000_001, 2), (70_001, 2 * 16_411), (99_999, 2 * 20_011)]
        {
            let crossed = cross_out(&big(first), &big(step));
            for (index, is_out) in (0u32..).zip(crossed) {
                let n = first + step * index;
                let has_factor = primes.iter().any(|p| n % u32::from(*p) == 0);
                assert_eq!(is_out, has_factor, "{first} + {index} * {step}");
            }
        }
    }

    #[test]
    fn primes_are_recognized() {
        // Two Mersenne primes, and a prime that the search has to find.
        for exponent in [127u32, 521] {
            let prime = (big(1) << exponent) - 1u32;
            assert!(is_prime(&prime));
            let found = search(&(&prime - 20u32), &big(2), &|| false).unwrap().unwrap();
            assert!(found <= prime && is_prime(&found));
        }
        // Carmichael numbers, squares, and strong pseudoprimes to the base 2.
        for composite in [561, 41_041, 825_265, 9, 49, 2_047, 3_277, 1_373_653, 25_326_001] {
            assert!(!is_prime(&big(composite)), "{composite}");
        }
        let both = ((big(1) << 521u32) - 1u32) * ((big(1) << 607u32) - 1u32);
        assert!(both.bits() > 1_024 && !is_prime(&both));
    }

    #[test]
    fn the_numbers_of_a_key_belong_together() {
        for bits in [512usize, 768, 1_023, 2_048] {
            let [n, e, d, p, q, dp, dq, inverse] = rsa(bits, &|| false).unwrap();
            assert!(is_prime(&p) && is_prime(&q) && p > q && n == &p * &q, "{bits}");
            assert_eq!((n.bits(), e), (bits as u64, big(65_537)));
            assert_eq!((dp, dq), (&d % (&p - 1u32), &d % (&q - 1u32)));
            assert_eq!((&inverse * &q) % &p, big(1));
            let message = number(bits - 1, 0);
            assert_eq!(message.modpow(&big(65_537), &n).modpow(&d, &n), message);
        }
        let [p, q, g, y, x] = dsa(&|| false).unwrap();
        assert!(is_prime(&p) && is_prime(&q) && (&p - 1u32) % &q == big(0));
        assert_eq!((p.bits(), q.bits(), g.modpow(&q, &p)), (2_048, 256, big(1)));
        assert!(g > big(1) && x > big(0) && x < q && y == g.modpow(&x, &p));
    }

    #[test]
    fn a_search_can_be_given_up() {
        assert!(rsa(2_048, &|| true).is_none() && dsa(&|| true).is_none());
    }
}
