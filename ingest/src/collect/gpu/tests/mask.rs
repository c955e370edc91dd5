//! Which GPUs a mask leaves out, by UUID and by place.

use super::*;
use crate::collect::gpu::mask::{GpuGiven, GpuMasks};

const NOBODY: [usize; 0] = [];

fn masks(variable: &str, mask: &str) -> GpuMasks {
    GpuMasks::of(|name| (name == variable).then(|| mask.to_owned()))
}

/// Which of them are left out, by their place.
fn left_out(masks: &GpuMasks, cards: &[GpuIdentity]) -> Vec<usize> {
    let bare = tempfile::tempdir().unwrap();
    let given = masks.given(&Tree::new(bare.path()), cards);
    (0..cards.len()).filter(|place| given[*place].in_job() == Some(false)).collect()
}

fn three(vendor: GpuVendor, uuids: [&str; 3]) -> Vec<GpuIdentity> {
    let places = ["0000:05:00.0", "0000:15:00.0", "0000:25:00.0"];
    places.iter().zip(uuids).map(|(pci, uuid)| card(vendor, pci, uuid)).collect()
}

#[test]
fn a_mask_names_gpus_by_uuid_or_by_place() {
    let nvidia = three(GpuVendor::Nvidia, ["GPU-aa11", "GPU-bb22", "GPU-bb33"]);
    for (mask, expected) in [
        ("0,2", vec![1]),
        ("GPU-bb33, GPU-aa", vec![1]),
        ("GPU-bb", vec![0]),
        ("1,-1,0", vec![0, 2]),
        ("", vec![0, 1, 2]),
        ("NoDevFiles", vec![0, 1, 2]),
        ("MIG-1c2d", vec![]),
    ] {
        assert_eq!(left_out(&masks("CUDA_VISIBLE_DEVICES", mask), &nvidia), expected, "{mask}");
    }
    let amd = three(GpuVendor::Amd, ["a1b2", "c3d4", "e5f6"]);
    assert_eq!(left_out(&masks("ROCR_VISIBLE_DEVICES", "GPU-C3D4,GPU-e5f6"), &amd), [0]);
}

#[test]
fn a_mask_of_one_vendor_says_nothing_of_another() {
    let amd = three(GpuVendor::Amd, ["a1b2", "c3d4", "e5f6"]);
    assert_eq!(left_out(&masks("CUDA_VISIBLE_DEVICES", "0"), &amd), NOBODY);
    assert_eq!(left_out(&GpuMasks::default(), &amd), NOBODY);
}

/// In a job that may open two of eight, `0` is the first of those two, and `/sys` shows eight.
#[test]
fn places_among_gpus_that_programs_may_not_open_say_nothing() {
    let amd = three(GpuVendor::Amd, ["a1b2", "c3d4", "e5f6"]);
    assert_eq!(left_out(&masks("ROCR_VISIBLE_DEVICES", "0"), &amd), NOBODY);
    let intel = three(GpuVendor::Intel, [""; 3]);
    assert_eq!(left_out(&masks("ZE_AFFINITY_MASK", "0.1"), &intel), NOBODY);
}

/// CUDA puts the fastest first, and nobody says which that is.
#[test]
fn among_unlike_gpus_a_place_says_something_only_by_address() {
    let mut unlike = three(GpuVendor::Nvidia, ["GPU-aa11", "GPU-bb22", "GPU-bb33"]);
    unlike[1].model = "T1000".to_owned();
    let by_place = masks("CUDA_VISIBLE_DEVICES", "0");
    assert_eq!(left_out(&by_place, &unlike), NOBODY);
    let by_address = GpuMasks { nvidia_order: Some("PCI_BUS_ID".to_owned()), ..by_place };
    assert_eq!(left_out(&by_address, &unlike), [1, 2]);
    assert_eq!(left_out(&masks("CUDA_VISIBLE_DEVICES", "GPU-bb22"), &unlike), [0, 2]);
}

#[test]
fn the_inventory_notes_what_the_job_was_not_given() {
    let stage = Stage::new();
    let source = PlayedSource::default();
    *source.cards.lock().unwrap() = three(GpuVendor::Nvidia, ["GPU-aa11", "GPU-bb22", "GPU-bb33"]);
    let view = GpuView { masks: masks("CUDA_VISIBLE_DEVICES", "GPU-bb22"), ..stage.view(2) };
    let mut gpus = VendorGpus::new(GpuVendor::Nvidia, Box::new(source), &view, &stage.roll);
    gpus.search();
    let notes: Vec<_> = gpus.inventory().unwrap().into_iter().map(|card| (card.in_job, card.reason)).collect();
    let not_given = (Some(false), "not in the job: CUDA_VISIBLE_DEVICES leaves it out".to_owned());
    assert_eq!(notes, [not_given.clone(), (Some(true), String::new()), not_given]);
}

/// As in a container or a control group that has some of the devices of the node.
#[test]
fn gpus_that_may_not_be_opened_are_not_in_the_job() {
    let stage = Stage::new();
    let amd = three(GpuVendor::Amd, ["a1b2", "c3d4", "e5f6"]);
    for (at, card) in amd.iter().enumerate() {
        let dir = format!("sys/bus/pci/devices/{}/drm/renderD{}", card.pci, 128 + at);
        fs::create_dir_all(stage.tree.path().join(dir)).unwrap();
    }
    let given = |masks: &GpuMasks| -> Vec<_> {
        masks.given(&Tree::new(stage.tree.path()), &amd).iter().map(GpuGiven::in_job).collect()
    };
    // Nothing can be opened, so nothing is known.
    assert_eq!(given(&GpuMasks::default()), [None; 3]);
    assert_eq!(given(&masks("ROCR_VISIBLE_DEVICES", "0")), [None; 3]);
    let dri = stage.tree.path().join("dev/dri");
    fs::create_dir_all(&dri).unwrap();
    fs::write(dri.join("renderD129"), "").unwrap();
    let of_one = [Some(false), Some(true), Some(false)];
    assert_eq!(given(&GpuMasks::default()), of_one);
    assert_eq!(given(&masks("ROCR_VISIBLE_DEVICES", "0")), of_one);
    fs::write(dri.join("renderD128"), "").unwrap();
    assert_eq!(given(&masks("ROCR_VISIBLE_DEVICES", "1,0")), [Some(true), Some(true), Some(false)]);
    // One of two, in an order that nobody says.
    assert_eq!(given(&masks("ROCR_VISIBLE_DEVICES", "1")), [None, None, Some(false)]);
    assert_eq!(given(&masks("ROCR_VISIBLE_DEVICES", "GPU-c3d4")), [Some(false), Some(true), Some(false)]);
}

/// NVIDIA's library refuses what the control group of the job keeps back; a mask counts the others alone.
#[test]
fn a_gpu_that_nvidias_library_refuses_is_not_in_the_job() {
    let mut nvidia = three(GpuVendor::Nvidia, ["GPU-aa11", "", "GPU-bb33"]);
    nvidia[1].status = DeviceStatus::Refused;
    assert_eq!(left_out(&GpuMasks::default(), &nvidia), [1]);
    assert_eq!(left_out(&masks("CUDA_VISIBLE_DEVICES", "1"), &nvidia), [0, 1]);
}
