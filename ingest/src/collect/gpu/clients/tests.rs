//! What `fdinfo` and kfd say.

use super::*;

#[test]
fn a_client_is_what_fdinfo_says_of_it() {
    let text = b"pos:\t0\nflags:\t02100002\ndrm-driver:\txe\ndrm-client-id:\t7\ndrm-pdev:\t0000:3a:00.0\n\
        drm-total-vram0:\t99 MiB\ndrm-resident-system:\t4 KiB\ndrm-resident-vram0:\t8192 KiB\n\
        drm-resident-vram1:\t1 MiB\ndrm-cycles-ccs:\t31000200\n";
    let client = DrmClient { id: 7, pci: PciAddress::parse("0000:3a:00.0"), bytes: 9 << 20 };
    assert_eq!(parse_fdinfo(text), Some(client));
    let old = parse_fdinfo(b"drm-driver:\ti915\ndrm-client-id:\t8\ndrm-total-local0:\t512\n");
    assert_eq!(old, Some(DrmClient { id: 8, pci: None, bytes: 512 }));
    assert_eq!(parse_fdinfo(b"pos:\t0\nflags:\t02\n"), None, "another file");
    let damaged = parse_fdinfo(b"drm-client-id:\t7\ndrm-resident-vram0:\t8 parsecs\ndrm-resident-vram1:\n:\n");
    assert_eq!(damaged, Some(DrmClient { id: 7, pci: None, bytes: 0 }));
}

#[test]
fn a_node_of_kfd_has_a_place() {
    let text = b"cpu_cores_count 0\nsimd_count 1216\nlocation_id 49408\ndomain 0\ndrm_render_minor 136\n";
    assert_eq!(parse_place(text).unwrap().to_string(), "0000:c1:00.0");
    assert_eq!(parse_place(b"location_id 49410\ndomain 2\n").unwrap().to_string(), "0002:c1:00.2");
    assert_eq!(parse_place(b"simd_count 0\n"), None);
}
