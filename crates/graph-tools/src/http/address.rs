//! A check for addresses on the public internet.
//!
//! Other addresses are refused unless a program allows them: the machine itself, its network, and services that clouds
//! provide at addresses such as 169.254.169.254. The lists follow IANA's special-purpose address registries (RFC 6890).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address is on the public internet. An IPv6 address that stands for an IPv4 address is as public as that one.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !matches!(
        (a, b, c),
        // "This network", private networks, loopback, link-local.
        (0 | 10 | 127, _, _) | (169, 254, _) | (172, 16..=31, _) | (192, 168, _)
        // Shared address space of providers (RFC 6598).
        | (100, 64..=127, _)
        // Protocol assignments, documentation, deprecated 6to4 relays, benchmarks.
        | (192, 0, 0 | 2) | (192, 88, 99) | (198, 18..=19, _) | (198, 51, 100) | (203, 0, 113)
        // Multicast, reserved, broadcast.
        | (224..=255, _, _)
    )
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let v4 = |high: u16, low: u16| {
        let ([one, two], [three, four]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(one, two, three, four))
    };
    match (a, b) {
        // IPv4-mapped (RFC 4291).
        (0, 0) if [c, d, e, f] == [0, 0, 0, 0xffff] => v4(g, h),
        // NAT64 (RFC 6052).
        (0x64, 0xff9b) if [c, d, e, f] == [0; 4] => v4(g, h),
        // 6to4 (RFC 3056).
        (0x2002, _) => v4(b, c),
        // Protocol assignments (including Teredo), documentation.
        (0x2001, 0..=0x1ff | 0xdb8) | (0x3fff, 0..=0xfff) => false,
        // Only global unicast is public: local (fc00::/7, fe80::/10), multicast and reserved addresses are not.
        _ => a & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_machine_and_its_network_are_not_public() {
        for text in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::8.8.8.8",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:c0a8:101::1",
            "3fff::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn all_others_are_public() {
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.0.1",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "223.255.255.254",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
            "2606:4700::1111",
            "2a00:1450::1",
        ] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }
}
