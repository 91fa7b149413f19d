//! Every option fio 3.33 has, and what becomes of it here.
//!
//! The names are the output of `fio --cmdhelp` and `fio --enghelp=ENGINE` of Debian's fio 3.33;
//! unknown here is unknown to fio too.

/// What becomes of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It does what it does in fio.
    Applies,
    /// It has no meaning here; said once.
    Ignored(&'static str),
    /// It would change what is measured and is not supported: an error.
    Refused(&'static str),
}

use Fate::{Applies, Ignored, Refused};

/// Options with the same fate.
struct Family {
    fate: Fate,
    names: &'static [&'static str],
}

/// fio's engines that keep one request in flight whatever `iodepth` says.
pub const SYNCHRONOUS_ENGINES: [&str; 7] =
    ["psync", "sync", "vsync", "pvsync", "pvsync2", "mmap", "splice"];

/// Other names of options, as fio knows them.
const ALIASES: [(&str, &str); 20] = [
    ("blockalign", "ba"),
    ("blocksize", "bs"),
    ("blocksize_range", "bsrange"),
    ("blocksize_unaligned", "bs_unaligned"),
    ("disable_bw", "disable_bw_measurement"),
    ("fileoffset", "offset"),
    ("fill_fs", "fill_device"),
    ("io_limit", "io_size"),
    ("iodepth_batch_complete", "iodepth_batch_complete_min"),
    ("iodepth_batch_submit", "iodepth_batch"),
    ("iomem", "mem"),
    ("nr_files", "nrfiles"),
    ("ratecycle", "rate_cycle"),
    ("ratemin", "rate_min"),
    ("readwrite", "rw"),
    ("ss", "steadystate"),
    ("ss_dur", "steadystate_duration"),
    ("ss_ramp", "steadystate_ramp_time"),
    ("timeout", "runtime"),
    ("wait_for_previous", "stonewall"),
];

const FAMILIES: [Family; 21] = [
    Family {
        fate: Applies,
        names: &[
            "description",
            "name",
            "rw",
            "bs",
            "ba",
            "bsrange",
            "bssplit",
            "randrepeat",
            "randseed",
            "norandommap",
            "rw_sequencer",
            "iodepth",
            "segments",
            "size",
            "io_size",
            "offset",
            "offset_increment",
            "number_ios",
            "random_distribution",
            "fsync",
            "fdatasync",
            "loops",
            "numjobs",
            "startdelay",
            "runtime",
            "time_based",
            "verify_only",
            "ramp_time",
            "verify",
            "do_verify",
            "verify_interval",
            "verify_fatal",
            "rwmixread",
            "rwmixwrite",
            "thinktime",
            "thinktime_blocks",
            "rate",
            "rate_iops",
            "sync",
            "end_fsync",
            "fsync_on_close",
            "stonewall",
            "new_group",
            "group_reporting",
            "zero_buffers",
            "refill_buffers",
            "buffer_pattern",
            "percentile_list",
            "continue_on_error",
            "kb_base",
        ],
    },
    Family {
        fate: Refused("it would change the workload and is not supported"),
        names: &[
            "wait_for",
            "bs_unaligned",
            "ignore_error",
            "serialize_overlap",
            "offset_align",
            "percentage_random",
            "write_barrier",
            "verify_offset",
            "verify_pattern",
            "trim_percentage",
            "trim_verify_zero",
            "trim_backlog",
            "trim_backlog_batch",
            "thinktime_spin",
            "thinktime_blocks_type",
            "thinktime_iotime",
            "rate_process",
            "rate_ignore_thinktime",
        ],
    },
    Family {
        fate: Ignored("the target is chosen with --on"),
        names: &[
            "filename",
            "lockfile",
            "directory",
            "filename_format",
            "unique_filename",
            "opendir",
            "filesize",
            "nrfiles",
            "file_service_type",
            "openfiles",
        ],
    },
    Family {
        fate: Ignored("the stack itself is the engine"),
        names: &["ioengine", "io_submit_mode"],
    },
    Family {
        fate: Ignored("the runner rings once per round and takes every completion there is"),
        names: &[
            "iodepth_batch",
            "iodepth_batch_complete_min",
            "iodepth_batch_complete_max",
            "iodepth_low",
        ],
    },
    Family {
        fate: Refused("the run has no such stop condition"),
        names: &[
            "fill_device",
            "rate_min",
            "rate_cycle",
            "rate_iops_min",
            "max_latency",
            "latency_target",
            "latency_window",
            "latency_percentile",
            "latency_run",
            "exitall",
            "exit_what",
            "exitall_on_error",
            "steadystate",
            "steadystate_duration",
            "steadystate_ramp_time",
        ],
    },
    Family {
        fate: Ignored("the target is not a file that is laid out"),
        names: &[
            "file_append",
            "fallocate",
            "overwrite",
            "create_serialize",
            "create_fsync",
            "create_on_open",
            "create_only",
            "allow_file_create",
            "allow_mounted_write",
            "unlink",
            "unlink_each_loop",
        ],
    },
    Family {
        fate: Ignored("random orders are permutations and need no choice of generator"),
        names: &["random_generator", "allrandrepeat"],
    },
    Family {
        fate: Ignored("there is no page cache under a stack"),
        names: &["fadvise_hint", "direct", "buffered", "invalidate", "pre_read"],
    },
    Family {
        fate: Ignored("it belongs to the operating system's I/O stack"),
        names: &["sync_file_range", "atomic", "ioscheduler", "write_hint"],
    },
    Family {
        fate: Ignored("everything is always measured"),
        names: &[
            "clocksource",
            "bwavgtime",
            "iopsavgtime",
            "block_error_percentiles",
            "stats",
            "clat_percentiles",
            "lat_percentiles",
            "slat_percentiles",
            "significant_figures",
            "disk_util",
            "gtod_reduce",
            "disable_lat",
            "disable_clat",
            "disable_slat",
            "disable_bw_measurement",
            "gtod_cpu",
            "unified_rw_reporting",
            "error_dump",
            "unit_base",
        ],
    },
    Family {
        fate: Ignored("buffers are the device's DMA memory"),
        names: &["mem", "lockmem", "hugepage-size"],
    },
    Family {
        fate: Ignored("everything is verified at the end, in this thread"),
        names: &[
            "verify_dump",
            "verify_async",
            "verify_backlog",
            "verify_backlog_batch",
            "experimental_verify",
            "verify_state_load",
            "verify_state_save",
        ],
    },
    Family {
        fate: Refused("traces are written with --trace, and not replayed"),
        names: &[
            "write_iolog",
            "read_iolog",
            "read_iolog_chunked",
            "replay_no_stall",
            "replay_redirect",
            "replay_scale",
            "replay_align",
            "replay_time_scale",
            "replay_skip",
            "merge_blktrace_file",
            "merge_blktrace_scalars",
            "merge_blktrace_iters",
        ],
    },
    Family {
        fate: Refused("jobs start no programs"),
        names: &["exec_prerun", "exec_postrun", "profile"],
    },
    Family {
        fate: Refused("zones are not supported"),
        names: &[
            "zonemode",
            "zonesize",
            "zonecapacity",
            "zonerange",
            "zoneskip",
            "read_beyond_wp",
            "max_open_zones",
            "job_max_open_zones",
            "ignore_zone_limits",
            "zone_reset_threshold",
            "zone_reset_frequency",
        ],
    },
    Family {
        fate: Ignored("all workers run in one thread"),
        names: &[
            "nice",
            "prio",
            "prioclass",
            "cpumask",
            "cpus_allowed",
            "cpus_allowed_policy",
            "numa_cpu_nodes",
            "numa_mem_policy",
            "thread",
            "cgroup",
            "cgroup_nodelete",
            "cgroup_weight",
            "uid",
            "gid",
        ],
    },
    Family {
        fate: Ignored("no such log is written; see --trace"),
        names: &[
            "per_job_logs",
            "write_bw_log",
            "write_lat_log",
            "write_iops_log",
            "log_entries",
            "log_avg_msec",
            "log_hist_msec",
            "log_hist_coarseness",
            "write_hist_log",
            "log_max_value",
            "log_offset",
            "log_prio",
            "log_compression",
            "log_compression_cpus",
            "log_store_compressed",
            "log_unix_epoch",
            "log_alternate_epoch",
            "log_alternate_epoch_clock_id",
        ],
    },
    Family {
        fate: Ignored("the content of write buffers does not matter to the stack"),
        names: &[
            "scramble_buffers",
            "buffer_compress_percentage",
            "buffer_compress_chunk",
            "dedupe_percentage",
            "dedupe_mode",
            "dedupe_working_set_percentage",
            "dedupe_global",
        ],
    },
    Family {
        fate: Refused("jobs do not take turns by flow"),
        names: &["flow_id", "flow", "flow_sleep"],
    },
    Family {
        fate: Ignored("it tunes an engine of fio"),
        names: &[
            "hipri",
            "hipri_percentage",
            "cmdprio_percentage",
            "cmdprio_class",
            "cmdprio",
            "cmdprio_bssplit",
            "fixedbufs",
            "registerfiles",
            "sqthread_poll",
            "sqthread_poll_cpu",
            "nonvectored",
            "uncached",
            "nowait",
            "force_async",
            "cmd_type",
            "userspace_reap",
            "readfua",
            "writefua",
            "sg_write_mode",
            "stream_id",
            "thp",
        ],
    },
];

/// The name by which `name` is known, and its fate; `None` if fio does not know it either.
pub fn find(name: &str) -> Option<(&'static str, Fate)> {
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
    let name = alias.map_or(name, |(_, known)| known);
    FAMILIES.iter().find_map(|family| {
        let found = family.names.iter().find(|known| **known == name);
        found.map(|found| (*found, family.fate))
    })
}

/// All names, aliases too.
pub fn names() -> impl Iterator<Item = &'static str> {
    let names = FAMILIES.iter().flat_map(|family| family.names.iter().copied());
    names.chain(ALIASES.iter().map(|(alias, _)| *alias))
}

/// The known name that `name` was most likely meant to be.
pub fn nearest(name: &str) -> Option<&'static str> {
    let scored = names().map(|known| (strsim::damerau_levenshtein(name, known), known));
    let best = scored.min_by_key(|&(distance, known)| (distance, known));
    best.filter(|&(distance, _)| distance <= name.len().div_ceil(3)).map(|(_, known)| known)
}
