//! Every option of fio, and its treatment here.
//!
//! The names are those of `fio --cmdhelp` and `fio --enghelp=ENGINE` of Debian's fio 3.33, and
//! additional ones from its sources of 2026; an option unknown here is unknown to fio too.

/// The treatment of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It has the same effect as in fio.
    Applies,
    /// It has no meaning here; reported once.
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

/// fio's engines that do no block I/O: their jobs cannot run on a disk.
pub const OTHER_ENGINES: [&str; 20] = [
    "cpuio",
    "dircreate",
    "dirdelete",
    "dirstat",
    "e4defrag",
    "exec",
    "falloc",
    "filecreate",
    "filedelete",
    "filestat",
    "ftruncate",
    "librpma_apm_client",
    "librpma_apm_server",
    "librpma_gpspm_client",
    "librpma_gpspm_server",
    "net",
    "netsplice",
    "page_fault",
    "rdma",
    "guasi",
];

/// fio's other engines: they keep `iodepth` requests in flight.
pub const ASYNCHRONOUS_ENGINES: [&str; 24] = [
    "dev-dax",
    "gfapi",
    "gfapi_async",
    "http",
    "io_uring",
    "io_uring_cmd",
    "libaio",
    "libblkio",
    "libcufile",
    "libhdfs",
    "libiscsi",
    "libpmem",
    "libzbc",
    "mtd",
    "nbd",
    "nfs",
    "null",
    "posixaio",
    "rados",
    "rbd",
    "sg",
    "solarisaio",
    "windowsaio",
    "xnvme",
];

/// Whether fio has an engine of this name, or finds it in a file: `external:./engine.so`.
pub fn is_engine(name: &str) -> bool {
    name.starts_with("external:") || engines().any(|engine| engine == name)
}

/// The engine that `name` was most probably meant to be.
pub fn nearest_engine(name: &str) -> Option<&'static str> {
    closest(name, engines())
}

/// All engines of fio.
fn engines() -> impl Iterator<Item = &'static str> {
    [&SYNCHRONOUS_ENGINES[..], &OTHER_ENGINES, &ASYNCHRONOUS_ENGINES].into_iter().flatten().copied()
}

/// The one of `all` that is most like `name`, if any is.
fn closest(name: &str, all: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let scored = all.map(|known| (strsim::damerau_levenshtein(name, known), known));
    let best = scored.min_by_key(|&(distance, known)| (distance, known));
    best.filter(|&(distance, _)| distance <= name.len().div_ceil(3)).map(|(_, known)| known)
}

/// Aliases of options in fio.
const ALIASES: [(&str, &str); 24] = [
    ("blockalign", "ba"),
    ("blocksize", "bs"),
    ("blocksize_range", "bsrange"),
    ("blocksize_unaligned", "bs_unaligned"),
    ("dataplacement", "data_placement"),
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
    ("iomem_align", "mem_align"),
    ("ss", "steadystate"),
    ("ss_dur", "steadystate_duration"),
    ("ss_interval", "steadystate_check_interval"),
    ("ss_ramp", "steadystate_ramp_time"),
    ("threads", "thread"),
    ("timeout", "runtime"),
    ("wait_for_previous", "stonewall"),
];

const FAMILIES: &[Family] = &[
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
            "filesize",
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
            "fill_device",
            "verify_pattern",
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
            "ignore_error",
            "wait_for",
            "rate_process",
            "rate_min",
            "rate_iops_min",
            "rate_cycle",
            "exitall",
            "exit_what",
            "exitall_on_error",
            "flow",
            "flow_id",
            "random_sequence_stride",
            "zonemode",
            "zonesize",
            "zonerange",
            "zoneskip",
            "zonecapacity",
            "read_beyond_wp",
            "max_open_zones",
            "job_max_open_zones",
            "ignore_zone_limits",
            "write_zone_remainder",
            "zone_reset_threshold",
            "zone_reset_frequency",
            "kb_base",
            "max_latency",
            "latency_target",
            "latency_window",
            "latency_percentile",
            "latency_run",
            "steadystate",
            "steadystate_check_interval",
            "steadystate_duration",
            "steadystate_ramp_time",
            "verify_offset",
            "verify_dump",
            "verify_backlog",
            "verify_backlog_batch",
            "write_iolog",
            "read_iolog",
            "replay_no_stall",
            "replay_scale",
            "replay_align",
            "replay_time_scale",
            "replay_skip",
        ],
    },
    Family {
        fate: Refused("it would change the workload and is not supported"),
        names: &[
            "bs_unaligned",
            "bs_is_seq_rand",
            "percentage_sequential",
            "ramp_size",
            "rwmixcycle",
            "thinkcycles",
            "verify_pattern_interval",
            "serialize_overlap",
            "offset_align",
            "percentage_random",
            "write_barrier",
            "trim_percentage",
            "trim_verify_zero",
            "trim_backlog",
            "trim_backlog_batch",
            "thinktime_spin",
            "thinktime_blocks_type",
            "thinktime_iotime",
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
            "filetype",
            "nrfiles",
            "file_service_type",
            "openfiles",
        ],
    },
    Family {
        fate: Refused("it lays out files and transfers nothing: leave the job out"),
        names: &["create_only"],
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
        fate: Ignored("the target is not a file that is laid out"),
        names: &[
            "file_append",
            "fallocate",
            "overwrite",
            "create_serialize",
            "create_fsync",
            "create_on_open",
            "allow_file_create",
            "allow_mounted_write",
            "unlink",
            "unlink_each_loop",
        ],
    },
    Family {
        fate: Ignored("random orders are permutations and need no choice of generator"),
        names: &["random_generator", "allrandrepeat", "softrandommap"],
    },
    Family {
        fate: Ignored("there is no page cache under a stack"),
        names: &["fadvise_hint", "direct", "buffered", "invalidate", "pre_read"],
    },
    Family {
        fate: Ignored("it belongs to the operating system's I/O stack"),
        names: &["comm", "sync_file_range", "atomic", "end_syncfs", "ioscheduler", "write_hint"],
    },
    Family {
        fate: Ignored("everything is always measured, and JSON has the percentiles of clat"),
        names: &[
            "clocksource",
            "job_start_clock_id",
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
        names: &["mem", "mem_align", "lockmem", "hugepage-size"],
    },
    Family {
        fate: Ignored("the runner checks what comes back, in its one thread"),
        names: &["verify_async", "verify_async_cpus", "verifysort", "verifysort_nr"],
    },
    Family {
        fate: Ignored("headers hold all that is known of a write, and every write is remembered"),
        names: &[
            "verify_header_seed",
            "verify_policy",
            "verify_write_sequence",
            "experimental_verify",
        ],
    },
    Family {
        fate: Ignored("no state of a verifying job is left behind"),
        names: &["verify_state_save"],
    },
    Family {
        fate: Refused(
            "no state of a job that was cut off is kept; verify_only=1 checks all that an earlier \
             run wrote",
        ),
        names: &["verify_state_load"],
    },
    Family {
        fate: Ignored("a log is read as a whole, and replayed on --on"),
        names: &["read_iolog_chunked", "replay_redirect"],
    },
    Family {
        fate: Refused(
            "logs are replayed as they are; read_iolog takes several, one for each worker",
        ),
        names: &["merge_blktrace_file", "merge_blktrace_scalars", "merge_blktrace_iters"],
    },
    Family { fate: Refused("jobs cannot start programs"), names: &["exec_prerun", "exec_postrun"] },
    Family {
        fate: Refused("its profiles are sets of jobs within fio: write those into a job file"),
        names: &["profile"],
    },
    Family {
        fate: Refused(
            "the write pointer of a zone is not read after a failed write: the zone is not \
             written again before it is reset",
        ),
        names: &["recover_zbd_write_error"],
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
            "log_issue_time",
            "log_window_value",
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
        fate: Ignored(
            "a job that is ahead of its share goes on as soon as the others have caught up",
        ),
        names: &["flow_sleep", "flow_watermark"],
    },
    Family {
        fate: Ignored("the stack gives devices no hints where to put data"),
        names: &[
            "data_placement",
            "dp_scheme",
            "fdp",
            "fdp_pli",
            "fdp_pli_select",
            "plid_select",
            "plids",
            "priohint",
        ],
    },
    Family {
        fate: Refused("sprandom fills a device in an order of its own, which is not supported"),
        names: &["sprandom", "spr_cs", "spr_num_regions", "spr_op"],
    },
    Family {
        fate: Ignored("it belongs to one of fio's engines, and the stack itself is the engine"),
        names: &[
            "apptag",
            "apptag_mask",
            "bindname",
            "brick",
            "busy_poll",
            "busy_wait_polling",
            "cdb_len",
            "chunk_size",
            "clientname",
            "clustername",
            "conf",
            "cont",
            "cuda_io",
            "deac",
            "direct_write_to_pmem",
            "gpu_dev_id",
            "gpu_dev_ids",
            "hdfs_use_direct",
            "hdfsdirectory",
            "hostname",
            "http_host",
            "http_mode",
            "http_object_mode",
            "http_pass",
            "http_s3_key",
            "http_s3_keyid",
            "http_s3_region",
            "http_s3_security_token",
            "http_s3_sse_customer_algorithm",
            "http_s3_sse_customer_key",
            "http_s3_storage_class",
            "http_swift_auth_token",
            "http_user",
            "http_verbose",
            "https",
            "initiator",
            "libaio_vectored",
            "libblkio_driver",
            "libblkio_force_enable_completion_eventfd",
            "libblkio_num_entries",
            "libblkio_path",
            "libblkio_pre_connect_props",
            "libblkio_pre_start_props",
            "libblkio_queue_size",
            "libblkio_vectored",
            "libblkio_wait_mode",
            "libblkio_write_zeroes_on_trim",
            "namenode",
            "nfs_url",
            "no_completion_thread",
            "object_class",
            "pool",
            "port",
            "rbd_encryption_format",
            "rbd_encryption_passphrase",
            "rbdname",
            "read_mode",
            "rocm_io",
            "serverip",
            "single_instance",
            "skip_bad",
            "touch_objects",
            "uri",
            "verb",
            "verify_bytchk",
            "verify_mode",
            "volume",
            "xnvme_admin",
            "xnvme_async",
            "xnvme_be",
            "xnvme_dev_nsid",
            "xnvme_dev_subnqn",
            "xnvme_iovec",
            "xnvme_mem",
            "xnvme_sync",
        ],
    },
    Family {
        fate: Refused("the engine it belongs to does no block I/O"),
        names: &[
            "arguments",
            "cpuchunks",
            "cpuload",
            "cpumode",
            "donorname",
            "exit_on_io_done",
            "grace_time",
            "inplace",
            "interface",
            "listen",
            "mss",
            "nodelay",
            "pingpong",
            "program",
            "proto",
            "protocol",
            "stat_type",
            "std_redirect",
            "ttl",
            "window_size",
        ],
    },
    Family {
        fate: Refused("protection information and metadata are not transferred"),
        names: &["md_per_io_size", "pi_act", "pi_chk"],
    },
    Family {
        fate: Refused("the stack has reads, writes and trims of one range each"),
        names: &["num_range", "sg_write_mode", "write_mode"],
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

/// Options of the program fio, not of its jobs, and what stands in their place here.
const OF_FIO_ITSELF: [(&str, &str); 25] = [
    ("alloc-size", "there is none: memory is taken as the jobs need it"),
    ("append-terse", NO_TERSE),
    ("aux-path", "there is none: files are where their names say"),
    ("bandwidth-log", "--csv FILE has the bandwidth over time"),
    ("client", "there are no clients and servers"),
    ("cmdhelp", "the options are listed in the manual, docs/bench-tool.md"),
    ("crctest", "there is none"),
    ("debug", "there is none; --trace shows what each request does"),
    ("enghelp", "the stack itself is the engine"),
    ("eta", "progress bars appear on a terminal only, and there is no choice"),
    ("idle-prof", "there is none"),
    ("inflate-log", "logs are written as text"),
    ("max-jobs", "there is none: a job may have up to 4096 workers"),
    ("minimal", NO_TERSE),
    ("output", "results go to standard output: redirect it, or use --csv or --report"),
    ("output-format", "text is the default; --json is fio's JSON, --csv FILE is CSV"),
    ("parse-only", "there is none: every job is checked before the first one runs"),
    ("readonly", "there is none: jobs that only read open files and disks for reading"),
    ("server", "there are no clients and servers"),
    ("showcmd", "there is none"),
    ("status-interval", "there is none; flysch gstat shows what the providers of a rig do"),
    ("terse-version", NO_TERSE),
    ("trigger", "there are no triggers"),
    ("trigger-file", "there are no triggers"),
    ("warnings-fatal", "there is none: what fio warns of is mostly an error"),
];

/// In the place of fio's old format.
const NO_TERSE: &str = "there is no terse output: --csv FILE has a row per job and direction";

/// What there is in the place of the option `name` of the program fio, if it is one.
pub fn in_place_of(name: &str) -> Option<&'static str> {
    OF_FIO_ITSELF.iter().find(|(known, _)| *known == name).map(|(_, place)| *place)
}

/// Names of options of the program fio.
pub fn of_fio_itself() -> impl Iterator<Item = &'static str> {
    OF_FIO_ITSELF.iter().map(|(name, _)| *name)
}

/// All names, including aliases.
pub fn names() -> impl Iterator<Item = &'static str> {
    let names = FAMILIES.iter().flat_map(|family| family.names.iter().copied());
    names.chain(ALIASES.iter().map(|(alias, _)| *alias))
}

/// All options with their fates, each once.
pub fn options() -> impl Iterator<Item = (&'static str, Fate)> {
    let of_family = |family: &'static Family| family.names.iter().map(|name| (*name, family.fate));
    FAMILIES.iter().flat_map(of_family)
}

/// The known name that `name` was most probably meant to be.
pub fn nearest(name: &str) -> Option<&'static str> {
    // Names differ by case, too.
    closest(&name.to_ascii_lowercase(), names())
}
