//! What is made of each answer and each error of the library.

use std::time::Duration;

use super::stand_in::{Driver, H100, StandIn};
use crate::collect::gpu::nvidia::frames::{
    GpmProfile, NvidiaCard, NvidiaReading, OffCause, ReaderOrder, ReaderQuestion, Throttled,
};
use crate::collect::gpu::nvidia::library::{NvmlLibrary, Off, pci_address};

struct Player {
    stand_in: StandIn,
    library: NvmlLibrary,
    level: u8,
}

impl Player {
    fn of(driver: Driver, level: u8, script: &str) -> Self {
        let stand_in = StandIn::new(driver, script);
        let library = NvmlLibrary::load(&order(&stand_in, level), Duration::ZERO, &mut |_| {}).unwrap();
        Self { stand_in, library, level }
    }

    fn new(level: u8, more: &str) -> Self {
        Self::of(Driver::New, level, &format!("{H100}{more}"))
    }

    fn plays(&self, more: &str) {
        self.stand_in.plays(&format!("{H100}{more}"));
    }

    fn read(&mut self, card: usize, second: u64) -> NvidiaReading {
        let question = ReaderQuestion { number: second, rare: true, left_out: Vec::new() };
        self.library.read(card, &question, Duration::from_secs(second), &mut |_| {}).unwrap().reading
    }

    fn search_again(&mut self, second: u64) -> bool {
        self.library.search_again(Duration::from_secs(second), &[], &mut |_| {}).unwrap()
    }

    fn off(&mut self) -> Off {
        self.library.read(0, &ReaderQuestion::default(), Duration::from_secs(1), &mut |_| {}).unwrap_err()
    }
}

fn order(stand_in: &StandIn, level: u8) -> ReaderOrder {
    ReaderOrder { level, library: Some(stand_in.library()), left_out: Vec::new() }
}

fn off(script: &str) -> Off {
    let stand_in = StandIn::new(Driver::New, script);
    NvmlLibrary::load(&order(&stand_in, 2), Duration::ZERO, &mut |_| {}).unwrap_err()
}

fn level_2() -> NvidiaReading {
    NvidiaReading {
        up: true,
        utilization: Some(87),
        memory_activity: Some(33),
        memory: Some([21_096_300_544, 85_520_809_984]),
        power_milliwatts: Some(412_345),
        energy_millijoules: Some(110_000_250),
        temperature: Some(61),
        ..NvidiaReading::default()
    }
}

fn level_3() -> NvidiaReading {
    NvidiaReading {
        sm_megahertz: Some(1_980),
        memory_megahertz: Some(2_619),
        memory_temperature: Some(54),
        limit_milliwatts: Some(700_000),
        throttled: Some([1_500_000_000, 250_000_000, 0].map(Throttled::Nanos)),
        memory_errors: Some([Some(12), Some(1)]),
        replays: Some(3),
        ..level_2()
    }
}

#[test]
fn every_value_is_read_at_its_level() {
    assert_eq!(Player::new(2, "").read(0, 1), level_2());
    let mut player = Player::new(3, "1 nvmlDeviceGetUtilizationRates value 5 1\n");
    assert_eq!(player.read(0, 1), level_3());
    let second = NvidiaReading { card: 1, utilization: Some(5), memory_activity: Some(1), ..level_3() };
    assert_eq!(player.read(1, 1), second);
}

#[test]
fn memory_that_is_used_is_what_is_not_free_whatever_the_driver_calls_used() {
    let mut player = Player::new(2, "* nvmlDeviceGetMemoryInfo_v2 value 1000 100 300 600\n");
    assert_eq!(player.read(0, 1).memory, Some([700, 1_000]));
}

#[test]
fn gpm_measures_between_two_questions() {
    let mut player = Player::new(3, "");
    assert_eq!(player.read(0, 10).profile, None);
    let profile = GpmProfile {
        sm_active: Some(71.5),
        sm_occupancy: Some(40.25),
        tensor_active: Some(55.125),
        memory_bandwidth: Some(62.75),
        link_bytes: [Some(2_000 << 20), Some(4_000 << 20)],
    };
    assert_eq!(player.read(0, 12).profile, Some(profile), "rates of 2 s");
    player.plays("* nvmlGpmMetricsGet.60 return 3\n* nvmlGpmMetricsGet.61 return 3\n");
    let without_links = GpmProfile { link_bytes: [None, None], ..profile };
    assert_eq!(player.read(0, 13).profile, Some(without_links));
    let mut ampere = Player::new(3, "* nvmlGpmQueryDeviceSupport value 0\n");
    assert_eq!([10, 12].map(|second| ampere.read(0, second).profile), [None, None]);
}

#[test]
fn xids_are_counted_once_each() {
    let mut player = Player::new(3, "0 nvmlEventSetWait_v2 value 31\n");
    assert_eq!(player.read(0, 1).xids, [(31, 1)]);
    assert_eq!(player.read(0, 2).xids, []);
    player.plays("0 nvmlEventSetWait_v2 value 31 79 43 43\n");
    assert_eq!(player.read(0, 3).xids, [(43, 2), (79, 1)]);
    assert_eq!(player.read(1, 3).xids, []);
}

#[test]
fn processes_are_read_at_level_4() {
    let processes = "0 nvmlDeviceGetComputeRunningProcesses_v3 value 4242 1073741824 0 5 77 4096\n";
    assert_eq!(Player::new(3, processes).read(0, 1).processes, None);
    let mut player = Player::new(4, processes);
    assert_eq!(player.read(0, 1).processes, Some(vec![(4_242, 1 << 30), (77, 4_096)]));
}

#[test]
fn instances_of_a_partitioned_gpu_have_memory_of_their_own() {
    let mut player = Player::new(
        2,
        "0 nvmlDeviceGetMigMode value 1
0 nvmlDeviceGetMaxMigDeviceCount value 7
0 nvmlDeviceGetUtilizationRates return 3
0:1 nvmlDeviceGetMigDeviceHandleByIndex return 0
0:5 nvmlDeviceGetMigDeviceHandleByIndex return 0
0:1 nvmlDeviceGetMemoryInfo_v2 value 1000 0 900 100
0:5 nvmlDeviceGetMemoryInfo_v2 value 2000 0 500 1500
",
    );
    let reading = player.read(0, 1);
    assert_eq!(reading.instances, Some(vec![(1, [100, 1_000]), (5, [1_500, 2_000])]));
    assert_eq!((reading.up, reading.utilization), (true, None));
    assert_eq!(player.read(1, 1).instances, None);
}

#[test]
fn what_the_driver_does_not_count_of_throttling_is_estimated_from_its_reasons() {
    let fields = "* nvmlDeviceGetFieldValues.251 return 3\n* nvmlDeviceGetFieldValues.253 return 3\n";
    let with = |reasons: &str| format!("{fields}* nvmlDeviceGetCurrentClocksThrottleReasons value {reasons}\n");
    let mut player = Player::new(3, &with("0x20"));
    let more = |heat: u64, hardware: u64| {
        Some([Throttled::Nanos(1_500_000_000), Throttled::MoreMicros(heat), Throttled::MoreMicros(hardware)])
    };
    assert_eq!(player.read(0, 10).throttled, more(0, 0), "nothing is known of the time before");
    assert_eq!(player.read(0, 12).throttled, more(2_000_000, 0));
    player.plays(&with("0x48"));
    assert_eq!(player.read(0, 13).throttled, more(1_000_000, 0), "a slowdown by hardware, because of heat");
    player.plays(&with("0x88"));
    assert_eq!(player.read(0, 14).throttled, more(0, 1_000_000));
    player.plays(&with("0x8"));
    assert_eq!(player.read(0, 16).throttled, more(0, 2_000_000));
    player.plays(&with("0x1"));
    assert_eq!(player.read(0, 17).throttled, more(0, 0));
}

#[test]
fn fields_of_newer_drivers_have_other_numbers() {
    let renumbered = "* nvmlSystemGetDriverVersion text 580.82.07
* nvmlDeviceGetFieldValues.251 value 7
* nvmlDeviceGetFieldValues.269 value 200000000
* nvmlDeviceGetFieldValues.270 value 50000000
* nvmlDeviceGetFieldValues.271 value 9
";
    let throttled = Player::new(3, renumbered).read(0, 1).throttled;
    assert_eq!(throttled, Some([1_500_000_000, 250_000_000, 9].map(Throttled::Nanos)));
}

#[test]
fn what_a_gpu_does_not_have_is_never_asked_again() {
    for (code, why) in [(3, "not supported"), (2, "invalid argument"), (25, "an unknown version of the struct")] {
        let mut player = Player::new(2, &format!("* nvmlDeviceGetPowerUsage return {code}\n"));
        let without = NvidiaReading { power_milliwatts: None, ..level_2() };
        assert_eq!(player.read(0, 1), without, "{why}");
        player.plays("");
        assert_eq!(player.read(0, 2), without, "{why}");
    }
}

#[test]
fn what_fails_for_a_moment_is_asked_again() {
    for code in [10, 21, 999] {
        let mut player = Player::new(2, &format!("* nvmlDeviceGetPowerUsage return {code}\n"));
        assert_eq!(player.read(0, 1), NvidiaReading { power_milliwatts: None, ..level_2() });
        player.plays("");
        assert_eq!(player.read(0, 2), level_2());
    }
}

#[test]
fn a_gpu_that_answers_nothing_is_not_up() {
    let mut player = Player::new(2, "");
    player.plays("0 * return 999\n");
    assert_eq!(player.read(0, 1), NvidiaReading::default());
    assert_eq!(player.read(1, 1), NvidiaReading { card: 1, ..level_2() });
    player.plays("");
    assert_eq!(player.read(0, 2), level_2());
}

#[test]
fn what_a_user_may_not_ask_is_told() {
    let mut player = Player::new(3, "0 nvmlGpmSampleGet return 4\n");
    let question = ReaderQuestion { number: 1, rare: true, left_out: Vec::new() };
    let answer = player.library.read(0, &question, Duration::ZERO, &mut |_| {}).unwrap();
    assert!(answer.is_news);
    assert_eq!(player.library.cards()[0].refused, ["GPM"]);
    let answer = player.library.read(0, &question, Duration::ZERO, &mut |_| {}).unwrap();
    assert!(!answer.is_news, "once");
}

#[test]
fn a_lost_gpu_is_asked_for_once_a_minute_and_the_others_go_on() {
    for code in [15, 16, 11] {
        let mut player = Player::new(2, "");
        player.read(0, 1);
        let lost = format!("0 * return {code}\n");
        player.plays(&lost);
        assert_eq!(player.read(0, 2), NvidiaReading::default());
        assert_eq!(player.read(1, 2), NvidiaReading { card: 1, ..level_2() });
        assert_eq!(player.read(0, 62), NvidiaReading::default(), "asked in vain");
        player.plays("");
        assert_eq!(player.read(0, 121), NvidiaReading::default(), "not asked");
        assert_eq!(player.read(0, 122), level_2());
    }
}

#[test]
fn a_gpu_of_another_job_is_closed_until_it_may_be_opened() {
    let mut player = Player::new(2, "0 nvmlDeviceGetHandleByIndex_v2 return 4\n");
    let closed =
        |player: &Player| player.library.cards().iter().map(|card| (card.index, card.is_closed)).collect::<Vec<_>>();
    assert_eq!(closed(&player), [(0, true), (1, false)]);
    assert!(!player.search_again(60), "nothing new");
    player.plays("");
    assert!(player.search_again(120));
    assert_eq!(closed(&player), [(0, false), (1, false)]);
}

#[test]
fn a_gpu_that_is_lost_from_the_beginning_says_who_it_is_when_it_is_back() {
    let mut player = Player::new(2, "0 nvmlDeviceGetHandleByIndex_v2 return 15\n");
    assert_eq!(player.read(0, 1), NvidiaReading::default());
    assert_eq!(player.library.cards()[0], NvidiaCard::default());
    player.plays("");
    assert_eq!(player.read(0, 59), NvidiaReading::default(), "not asked");
    let question = ReaderQuestion { number: 60, rare: true, left_out: Vec::new() };
    let answer = player.library.read(0, &question, Duration::from_secs(60), &mut |_| {}).unwrap();
    assert_eq!((answer.reading, answer.is_news), (level_2(), true));
    assert_eq!(player.library.cards()[0].uuid, "GPU-11111111-2222-3333-4444-555555555555");
}

/// The time of both is one counter: without one of them it would fall, and be back a tick later.
#[test]
fn a_reason_of_throttling_is_told_as_a_whole_or_not_at_all() {
    let mut player = Player::new(3, "");
    for code in [10, 999] {
        player.plays(&format!("* nvmlDeviceGetFieldValues.252 return {code}\n"));
        let without = Some([Throttled::Nanos(1_500_000_000), Throttled::Unknown, Throttled::Nanos(0)]);
        assert_eq!(player.read(0, 1).throttled, without);
        player.plays("");
        assert_eq!(player.read(0, 2).throttled, level_3().throttled);
    }
    player.plays("* nvmlDeviceGetFieldValues.252 value 18446744073709551615\n");
    assert_eq!(player.read(0, 3).throttled.unwrap()[1], Throttled::Unknown, "no number of nanoseconds");

    // One that was lost counts as before when it is back.
    player.plays("* nvmlDeviceGetFieldValues.251 return 15\n* nvmlDeviceGetFieldValues.82 return 15\n");
    assert!(!player.read(0, 4).up);
    player.plays("");
    let back = player.read(0, 64);
    assert_eq!((back.throttled, back.memory_temperature), (level_3().throttled, Some(54)));
}

#[test]
fn a_gpu_that_comes_later_is_found_within_a_minute() {
    let mut player = Player::new(2, "* nvmlDeviceGetCount_v2 value 1\n");
    player.plays("");
    assert_eq!([59, 60, 61].map(|second| player.search_again(second)), [false, true, false]);
    assert_eq!(player.library.len(), 2);
}

#[test]
fn an_old_driver_lacks_calls_and_answers_the_others() {
    let mut player = Player::of(Driver::Old, 3, H100);
    let lacking = NvidiaReading { memory: None, energy_millijoules: None, ..level_3() };
    assert_eq!(player.read(0, 1), lacking);
    assert_eq!(player.read(0, 2), lacking);
}

#[test]
fn without_a_driver_or_with_another_version_of_it_nothing_can_be_asked() {
    assert_eq!(off("* nvmlInit_v2 return 9\n").cause, OffCause::NoDriver);
    assert_eq!(off("* nvmlInit_v2 return 18\n").cause, OffCause::Mismatch);
    assert_eq!(off("* nvmlInit_v2 return 4\n").cause, OffCause::NoPermission);
    assert_eq!(off("* nvmlInit_v2 return 999\n").cause, OffCause::Other);
    for (code, cause) in [(9, OffCause::NoDriver), (18, OffCause::Mismatch), (1, OffCause::Other)] {
        let mut player = Player::new(2, "");
        player.plays(&format!("* nvmlDeviceGetPowerUsage return {code}\n"));
        assert_eq!(player.off().cause, cause, "while it ran");
    }
    let library = Some("/nowhere/libnvidia-ml.so.1".to_owned());
    let order = ReaderOrder { level: 2, library, left_out: Vec::new() };
    let nowhere = NvmlLibrary::load(&order, Duration::ZERO, &mut |_| {}).unwrap_err();
    assert_eq!(nowhere.cause, OffCause::NoLibrary);
}

#[test]
fn a_node_may_have_no_gpu() {
    let player = Player::new(2, "* nvmlDeviceGetCount_v2 value 0\n");
    assert_eq!((player.level, player.library.len()), (2, 0));
}

#[test]
fn identities_are_told_as_the_kernel_writes_addresses() {
    let card = &Player::new(2, "").library.cards()[1];
    let told = (&*card.uuid, &*card.name, &*card.pci, &*card.serial, &*card.vbios);
    let uuid = "GPU-66666666-7777-8888-9999-aaaaaaaaaaaa";
    assert_eq!(told, (uuid, "NVIDIA H100 80GB HBM3", "0000:43:00.0", "1650123456789", "96.00.89.00.01"));
    assert_eq!((card.memory_bytes, card.limit_milliwatts), (Some(85_520_809_984), Some(700_000)));
    for (of_library, of_kernel) in [
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("0000:07:00.0", "0000:07:00.0"),
        ("00010000:07:00.0", "10000:07:00.0"),
        ("0000000A:07:00.0", "000a:07:00.0"),
        ("", ""),
        ("nonsense", "nonsense"),
    ] {
        assert_eq!(pci_address(of_library), of_kernel);
    }
}
