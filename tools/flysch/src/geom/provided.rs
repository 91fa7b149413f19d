//! A provider of a rig as a disk with lanes: for workloads, copies, exports.
//!
//! Each lane has its own way through the graph. When a component drops out, all lanes stop
//! accepting requests until none is in flight; then the graph is informed and records the loss, and
//! all lanes continue by new ways. This happens in `poll`, so the user of the lanes need not know
//! about it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::rc::Rc;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Sender;

use flysch_api::block::{self, Completion, Device, Geometry, Refused, Request};
use flysch_api::machine::{Clock, DmaRegion, Instant};
use flysch_bench::jobfile::JobFile;
use flysch_bench::play::{self, PlayError, PlayOptions, Played};
use flysch_bench::published::Origin;
use flysch_bench::results::{self, Layer};
use flysch_bench::zones::Zones;
use flysch_geom::{Access, ConsumerId, Graph, Incident, Plan, ProviderId, Usage, Way};
use flysch_models::media::energy::Energy;
use flysch_rig::blocks::{Blocks, OnDevice};
use flysch_rig::rig::{DiskLane, RigClock, RigFile};
use flysch_rig::{ClockKind, Needs, ParseError, Stack, Target, Visitor};

use super::counters::{Told, Watched};
use super::layers::Layers;
use super::rebuild::{Beside, Rebuild};
use super::rig::{self, Timed};
use super::session::Session;
use super::stats::snapshot_of_ways;
use super::{Action, act, plug, zns};
use crate::failure::Failure;
use crate::output::Output;

/// Interval at which disks are checked for reported events, nanoseconds of the rig's time.
const LOOK_NANOS: u64 = 100_000_000;

/// A target, or a provider of a rig.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum On {
    /// A target.
    Target(Box<Target>),
    /// `RIG:PROVIDER`: a file and a name.
    Provider(PathBuf, String),
}

impl FromStr for On {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text.parse::<Target>() {
            Ok(target) => Ok(Self::Target(Box::new(target))),
            Err(error) => match RigFile::split(text) {
                Some((path, provider)) => Ok(Self::Provider(path.into(), provider.into())),
                None => Err(error),
            },
        }
    }
}

impl On {
    /// The target, if it is one.
    pub(crate) fn target(&self) -> Option<&Target> {
        match self {
            Self::Target(target) => Some(target),
            Self::Provider(..) => None,
        }
    }

    /// Where figures of the device have been published.
    pub(crate) fn origin(&self) -> Option<Origin> {
        self.target().and_then(Target::origin)
    }

    /// Whether it is a modelled UFS device alone.
    pub(crate) fn is_bare(&self) -> bool {
        self.target().is_some_and(Target::is_bare)
    }
}

/// An open disk: a target's, or a provider of a rig.
pub(crate) enum Disk {
    /// A target's.
    Target(Box<Stack>),
    /// A provider.
    Provider(Box<Provided>),
}

impl Disk {
    /// Opens it; a rig may get another clock than the file's.
    pub(crate) fn open(on: &On, needs: &Needs, clock: Option<ClockKind>) -> Result<Self, Failure> {
        match on {
            On::Target(target) => Ok(Self::Target(Box::new(Stack::open(target, needs)?))),
            On::Provider(path, provider) => {
                let mut file = rig::read(path)?;
                match clock {
                    Some(ClockKind::Real) => {
                        let why = "models of rigs have no thread of their own: \
                                   --clock virtual or hybrid";
                        return Err(Failure::usage(why));
                    }
                    Some(clock) => file.set_clock(clock),
                    None => {}
                }
                Provided::open(&file, provider, needs).map(|it| Self::Provider(Box::new(it)))
            }
        }
    }

    /// Lets `visitor` work on it.
    pub(crate) fn visit<V: Visitor>(&mut self, visitor: V) -> V::Output {
        match self {
            Self::Target(stack) => stack.visit(visitor),
            Self::Provider(provided) => {
                provided.begin();
                visitor.visit(&mut provided.lanes, &provided.clock)
            }
        }
    }

    /// Plays the jobs of a file on it.
    pub(crate) fn play<'a>(
        &mut self,
        file: &'a JobFile,
        options: PlayOptions<'a>,
    ) -> Result<Played, PlayError> {
        match self {
            Self::Target(stack) => stack.play(file, options),
            Self::Provider(it) => {
                it.begin();
                play::play(&mut it.lanes, &it.clock, file, options)
            }
        }
    }

    /// The zones of the disk of a target; none if it has none. Providers of rigs have none: the
    /// graph writes no zoned disk.
    pub(crate) fn zones(&mut self) -> Result<Option<Zones>, Failure> {
        match self {
            Self::Target(stack) => zns::zones_of(stack),
            Self::Provider(_) => Ok(None),
        }
    }

    /// The energy that modelled devices have used so far; unknown for a rig.
    pub(crate) fn energy(&self) -> Option<Energy> {
        match self {
            Self::Target(stack) => stack.energy(),
            Self::Provider(_) => None,
        }
    }

    /// From now on clients can query what goes through its providers; a target alone has none.
    pub(crate) fn watch(&mut self, watched: &Watched) {
        if let Self::Provider(provided) = self {
            provided.watch(watched);
        }
    }

    /// The first lane as bytes.
    pub(crate) fn blocks(&mut self) -> Box<dyn Blocks + '_> {
        match self {
            Self::Target(stack) => stack.blocks(),
            Self::Provider(it) => {
                it.begin();
                Box::new(OnDevice::new(&mut it.lanes[0], &it.clock))
            }
        }
    }

    /// Its properties.
    pub(crate) fn geometry(&self) -> Geometry {
        match self {
            Self::Target(stack) => stack.geometry(),
            Self::Provider(provided) => *provided.lanes[0].geometry(),
        }
    }

    /// Its description for people.
    pub(crate) fn description(&self) -> &str {
        match self {
            Self::Target(stack) => stack.description(),
            Self::Provider(provided) => &provided.description,
        }
    }

    /// The name of its clock.
    pub(crate) fn clock_name(&self) -> &'static str {
        match self {
            Self::Target(stack) => stack.clock_name(),
            Self::Provider(it) => it.owner.borrow().session.rigs[0].clock_name(),
        }
    }

    /// Everything that has gone wrong so far.
    pub(crate) fn incidents(&self) -> Vec<results::Incident> {
        match self {
            Self::Target(stack) => stack.incidents(),
            Self::Provider(provided) => provided.owner.borrow().incidents(),
        }
    }

    /// What the classes of the block layer have done so far, topmost first.
    pub(crate) fn layers(&mut self) -> Vec<Layer> {
        match self {
            Self::Target(_) => Vec::new(),
            Self::Provider(provided) => provided.layers(),
        }
    }

    /// Why the machine below could not do its work.
    pub(crate) fn failure(&self) -> Option<String> {
        match self {
            Self::Target(stack) => stack.failure(),
            Self::Provider(provided) => provided.owner.borrow().session.rigs[0].failure(),
        }
    }

    /// Keeps files that were created for it.
    pub(crate) fn keep(&mut self) {
        match self {
            Self::Target(stack) => stack.keep(),
            Self::Provider(provided) => provided.owner.borrow_mut().session.keep(),
        }
    }
}

/// A provider of a rig.
pub(crate) struct Provided {
    lanes: Vec<Lane>,
    clock: RigClock,
    owner: Rc<RefCell<Owner>>,
    description: String,
}

impl Provided {
    fn open(file: &RigFile, name: &str, needs: &Needs) -> Result<Self, Failure> {
        let events = rig::events(file)?;
        let mut session = Session::open_lanes(file, needs)?;
        rig::make(&mut session, file)?;
        session.beside = Beside::WithRate;
        if name.is_empty() {
            let all: Vec<&str> =
                session.graph.objects().providers().map(|(_, it)| &it.name[..]).take(24).collect();
            let (path, all) = (file.path.display(), all.join(", "));
            let text = format!("{path}: name a provider, as `{path}:NAME`; there are {all}");
            return Err(Failure::usage(text));
        }
        let provider = session.provider(name)?;
        let description = describe(&session, provider);
        let opened = session.graph.open(provider, Access::ALONE);
        let consumer = opened.map_err(|error| session.failure(error))?;
        session.graph.settle();
        let plan =
            Plan::new(&mut session.graph, consumer).map_err(|error| session.failure(error))?;
        let clock = session.rigs[0].clock().cloned().expect("a rig with lanes has a clock");
        let of_disk = |disk: &ProviderId| session.lanes.get(disk).map_or(0, Vec::len);
        let count = plan.disks().iter().map(of_disk).min().unwrap_or(0);
        check_memory(&session, &plan)?;
        let mut owner = Owner {
            session,
            consumer,
            plan: plan.clone(),
            lost: Vec::new(),
            dropped: Vec::new(),
            mended: 0,
            quiet: 0,
            ways: count.max(1),
            told: Vec::new(),
            watcher: None,
            events: events.into(),
            begun: Instant::START,
            look_at: Instant::NEVER,
            due: Vec::new(),
            rebuilds: Vec::new(),
            is_piece_due: false,
            is_dead: false,
            layers: Layers::default(),
        };
        owner.layers.know(&owner.session.graph, &plan);
        let mut ways = Vec::new();
        for number in 0..count.max(1) {
            let way = Way::new(plan.clone(), |disk| owner.lane(disk, number));
            ways.push(way.map_err(|error| owner.session.failure(error))?);
        }
        let (owner, signal) = (Rc::new(RefCell::new(owner)), Rc::new(Signal::default()));
        let turn = Arc::new(AtomicU32::new(0));
        let lane = |(number, way)| Lane {
            way,
            number,
            owner: Rc::clone(&owner),
            signal: Rc::clone(&signal),
            turn: Arc::clone(&turn),
            seen: 0,
            shown: 0,
            epoch: 0,
            due: Instant::NEVER,
            wakes_at: Instant::NEVER,
            is_told: false,
            is_dead: false,
        };
        let lanes = ways.into_iter().enumerate().map(lane).collect();
        Ok(Self { lanes, clock, owner, description })
    }

    /// What the classes on the ways have done so far.
    fn layers(&mut self) -> Vec<Layer> {
        let now = self.clock.now();
        let mut layers = self.owner.borrow().layers.clone();
        for lane in &mut self.lanes {
            layers.add(lane.way.plan(now));
        }
        layers.told()
    }

    /// Requests are about to start: from now on the time of events is counted, once.
    fn begin(&mut self) {
        let owner = &mut *self.owner.borrow_mut();
        if owner.begun == Instant::START {
            owner.begun = self.clock.now();
            owner.look_at = owner.begun.after_nanos(LOOK_NANOS);
            self.lanes.iter_mut().for_each(|lane| {
                (lane.due, lane.wakes_at) = (owner.next(), owner.wakes_at());
            });
        }
    }

    fn watch(&mut self, watched: &Watched) {
        // What was asked before is told at once.
        let before = watched.turn.load(Ordering::Relaxed).wrapping_sub(1);
        for lane in &mut self.lanes {
            lane.turn = Arc::clone(&watched.turn);
            (lane.seen, lane.shown) = (before, before);
        }
        let owner = &mut *self.owner.borrow_mut();
        owner.told = vec![(before, Vec::new()); self.lanes.len()];
        owner.watcher = Some(watched.told.clone());
    }
}

impl Drop for Provided {
    /// Closes the provider: mirrors are marked clean.
    fn drop(&mut self) {
        let owner = &mut *self.owner.borrow_mut();
        if self.lanes.iter().all(|lane| lane.way.is_quiet()) {
            for lane in self.lanes.drain(..) {
                lane.way.into_parts().0.account(&mut owner.session.graph);
            }
            owner.session.graph.shut(owner.consumer);
            owner.session.graph.settle();
        }
    }
}

/// All lanes of a way must share one memory; QEMU and PCI functions have their own.
fn check_memory(session: &Session, plan: &Plan) -> Result<(), Failure> {
    let memory = |disk: &ProviderId| {
        let lane = session.lanes.get(disk)?.first()?;
        let memory = lane.memory();
        Some((memory.address(), memory.len()))
    };
    let is_modelled = matches!(session.rigs[0].clock(), Some(RigClock::Models(_)));
    let strange = |disk: &&ProviderId| {
        let lane = session.lanes.get(disk).and_then(|lanes| lanes.first());
        lane.is_some_and(|lane| is_modelled && !lane.is_timeless())
    };
    if let Some(&disk) = plan.disks().iter().find(strange) {
        return Err(Failure::failed(format!(
            "{}: runs in this machine's time, but other disks of the rig are models in a time of \
             their own; give it a controller",
            session.graph[disk].name
        )));
    }
    let Some(first) = plan.disks().first() else { return Ok(()) };
    match plan.disks().iter().find(|disk| memory(disk) != memory(first)) {
        None => Ok(()),
        Some(&other) => {
            let (one, other) = (&session.graph[*first].name, &session.graph[other].name);
            Err(Failure::failed(format!(
                "{other}: has memory of its own, and so has {one}: only models, files and `null` \
                 can be used together"
            )))
        }
    }
}

/// The structure of a provider, down to its disks.
fn describe(session: &Session, provider: ProviderId) -> String {
    let mut disks = Vec::new();
    let shape = shape(&session.graph, provider, &mut disks);
    let mut kinds: Vec<(String, usize)> = Vec::new();
    for disk in &disks {
        let Some(lane) = session.lanes.get(disk).and_then(|lanes| lanes.first()) else { continue };
        let kind = lane.description();
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count += 1,
            None => kinds.push((kind, 1)),
        }
    }
    let kinds: Vec<String> = kinds
        .into_iter()
        .map(|(kind, count)| if count == 1 { kind } else { format!("{count} x {kind}") })
        .collect();
    format!("{shape}; {}", kinds.join(", "))
}

fn shape(graph: &Graph, provider: ProviderId, disks: &mut Vec<ProviderId>) -> String {
    let there = &graph[provider];
    let geom = &graph[there.geom];
    let under: Vec<ProviderId> =
        geom.consumers.iter().filter_map(|&consumer| graph[consumer].provider).collect();
    if under.is_empty() {
        if !disks.contains(&provider) {
            disks.push(provider);
        }
        return there.name.clone();
    }
    let under: Vec<String> = under.into_iter().map(|it| shape(graph, it, disks)).collect();
    format!("{} {} on {}", geom.class.name(), there.name, bracketed(&under))
}

fn bracketed(all: &[String]) -> String {
    match all {
        [one] => one.clone(),
        _ => format!("({})", all.join(", ")),
    }
}

/// The graph, and what its lanes report to it.
struct Owner {
    session: Session,
    consumer: ConsumerId,
    /// The newest way.
    plan: Plan,
    /// Components that dropped out and of which the graph has not been informed.
    lost: Vec<(ConsumerId, block::Error)>,
    /// What dropped out, in words.
    dropped: Vec<String>,
    /// Places that were repaired.
    mended: u64,
    /// Ways with nothing in flight, while they change.
    quiet: usize,
    ways: usize,
    /// What each lane last published about its way, and for which number; nothing for a way that
    /// has changed.
    told: Vec<(u32, Vec<Usage>)>,
    /// The client that waits until all have published.
    watcher: Option<Sender<Told>>,
    /// Pending events, and since when their time is counted.
    events: VecDeque<Timed>,
    begun: Instant,
    /// When disks are next checked for reported events.
    look_at: Instant,
    /// What happens when nothing is in flight.
    due: Vec<Timed>,
    /// Rebuilds that run beside requests, and whether a piece of one is to be copied next.
    rebuilds: Vec<Rebuild>,
    is_piece_due: bool,
    /// The provider is gone.
    is_dead: bool,
    /// What former ways did.
    layers: Layers,
}

impl Owner {
    fn lane(&self, disk: ProviderId, number: usize) -> Option<DiskLane> {
        self.session.lanes.get(&disk)?.get(number).cloned()
    }

    /// Nothing is in flight: the graph is informed, pending events are executed, and the ways are
    /// replaced.
    fn change(&mut self, now: Instant) {
        for (consumer, error) in std::mem::take(&mut self.lost) {
            if let (block::Error::Gone, Some(name)) = (error, self.name_under(consumer)) {
                self.session.gone.borrow_mut().push(name);
            }
            self.session.graph.failed(consumer, error);
        }
        self.session.graph.settle();
        self.session.now = nanos(now);
        for Timed { place, action, .. } in self.due.drain(..) {
            let (mut output, _) = Output::kept(false);
            let done = match &action {
                Action::Disk(plug::Verb::Detach { name, .. }) => {
                    self.session.rescan(Some(name)).map(drop)
                }
                _ => act(&mut self.session, &action, &mut output),
            };
            if let Err(error) = done {
                self.dropped.push(format!("{place}: {error}"));
            }
        }
        self.rebuild(now);
        let found = self.session.look();
        self.dropped.extend(found.into_iter().map(|disk| format!("{disk}: found")));
        match Plan::new(&mut self.session.graph, self.consumer) {
            Ok(plan) => {
                self.layers.know(&self.session.graph, &plan);
                self.plan = plan;
            }
            // The ways stay what they are, for what is to be given back still.
            Err(_) => self.is_dead = true,
        }
        self.quiet = 0;
    }

    /// Copies a piece of each rebuild that is due.
    fn rebuild(&mut self, now: Instant) {
        self.is_piece_due = false;
        self.rebuilds.append(&mut self.session.rebuilds);
        let (graph, dropped) = (&mut self.session.graph, &mut self.dropped);
        self.rebuilds.retain_mut(|rebuild| {
            if rebuild.due() > nanos(now) {
                return true;
            }
            match rebuild.step(graph) {
                Ok(true) => return true,
                Ok(false) => dropped.push(rebuild.said()),
                Err(error) => dropped.push(error.to_string()),
            }
            false
        });
    }

    /// When the next piece of a rebuild is due.
    fn next_piece(&self) -> Instant {
        let due = self.rebuilds.iter().map(Rebuild::due).min();
        due.map_or(Instant::NEVER, |due| Instant::START.after_nanos(due))
    }

    /// Whether a piece of a rebuild is to be copied; returned once.
    fn must_rebuild(&mut self, now: Instant) -> bool {
        let was_due = self.is_piece_due;
        self.is_piece_due |= now >= self.next_piece();
        self.is_piece_due && !was_due
    }

    /// The name of a consumer's provider.
    fn name_under(&self, consumer: ConsumerId) -> Option<String> {
        let graph = &self.session.graph;
        let provider = graph.objects().consumer(consumer)?.provider?;
        graph.objects().provider(provider).map(|there| there.name.clone())
    }

    /// When the next event is.
    fn next_event(&self) -> Instant {
        let next = self.events.front();
        next.map_or(Instant::NEVER, |event| self.begun.after_nanos(event.at))
    }

    /// When idle lanes wake: for the next event, or piece of a rebuild.
    fn wakes_at(&self) -> Instant {
        self.next_event().min(self.next_piece())
    }

    /// When something is to be done beside requests: that, or a check of events reported by disks.
    fn next(&self) -> Instant {
        self.wakes_at().min(self.look_at)
    }

    /// Whether disks have reported anything, checked from time to time.
    fn must_look(&mut self, now: Instant) -> bool {
        if now < self.look_at {
            return false;
        }
        self.look_at = now.after_nanos(LOOK_NANOS);
        self.session.has_news()
    }

    /// Executes what is due now: disks are pulled out at once, whatever is in flight; everything
    /// else waits until nothing is, and so does whatever is due after it. Returns whether anything
    /// waits.
    fn happen(&mut self, now: Instant) -> bool {
        let at = self.events.front().filter(|_| self.due.is_empty() && now >= self.next_event());
        let Some(at) = at.map(|event| event.at) else { return false };
        while self.events.front().is_some_and(|event| event.at == at)
            && let Some(event) = self.events.pop_front()
        {
            if let Action::Disk(plug::Verb::Detach { away, name }) = &event.action
                && let Err(error) = self.session.pull(name, *away)
            {
                self.dropped.push(format!("{}: {error}", event.place));
                continue;
            }
            self.due.push(event);
        }
        !self.due.is_empty()
    }

    /// A lane publishes what went its way.
    fn show(&mut self, number: usize, (turn, now): (u32, Instant), plan: &Plan) {
        let (Some(watcher), Some(told)) = (&self.watcher, self.told.get_mut(number)) else {
            return;
        };
        *told = (turn, plan.usage().collect());
        if self.told.iter().all(|(of, _)| *of == turn) {
            let lanes: Vec<&[Usage]> = self.told.iter().map(|(_, usage)| &usage[..]).collect();
            let snapshot = snapshot_of_ways(&self.session.graph, now, &lanes);
            // Who is gone needs no answer.
            let _ = watcher.send((turn, snapshot));
        }
    }

    fn incidents(&self) -> Vec<results::Incident> {
        let mut all = self.session.rigs[0].incidents();
        let geom = |what: String, count| results::Incident { source: "geom".into(), what, count };
        let mut told: Vec<(&String, u64)> = Vec::new();
        for what in &self.dropped {
            match told.iter_mut().find(|(known, _)| *known == what) {
                Some((_, count)) => *count += 1,
                None => told.push((what, 1)),
            }
        }
        all.extend(told.into_iter().map(|(what, count)| geom(what.clone(), count)));
        all.push(geom("mended".into(), self.mended));
        all
    }
}

/// The rig's time, as rebuilds count it.
fn nanos(now: Instant) -> u64 {
    now.nanos_since(Instant::START)
}

/// Why lanes must change their ways.
#[derive(Debug, Default)]
struct Signal {
    /// All lanes stop so that the graph can change.
    is_changing: Cell<bool>,
    /// How often that happened.
    epoch: Cell<u32>,
}

/// A lane of a provider.
pub(crate) struct Lane {
    way: Way<DiskLane>,
    number: usize,
    owner: Rc<RefCell<Owner>>,
    signal: Rc<Signal>,
    /// Checked by a lane with every poll: raised when ways must change, and by clients that query
    /// counters.
    turn: Arc<AtomicU32>,
    /// Its value when everything had been handled.
    seen: u32,
    /// Its value when counters were last published.
    shown: u32,
    epoch: u32,
    /// When something is to be done beside requests.
    due: Instant,
    /// When a waiting user wakes for such work: not for a check.
    wakes_at: Instant,
    /// The owner knows that nothing is in flight here.
    is_told: bool,
    /// There is no way any longer.
    is_dead: bool,
}

impl Lane {
    #[cold]
    fn tell(&mut self, incident: Incident) {
        let owner = &mut *self.owner.borrow_mut();
        match incident {
            Incident::Lost { consumer, error } => {
                let name = owner.name_under(consumer).unwrap_or_else(|| "a component".into());
                owner.dropped.push(format!("{name}: {error}"));
                owner.lost.push((consumer, error));
                self.signal.is_changing.set(true);
                self.turn.fetch_add(1, Ordering::Relaxed);
            }
            Incident::Mended { .. } => owner.mended += 1,
        }
    }

    /// One step towards another way.
    #[cold]
    fn change(&mut self, now: Instant) {
        if self.signal.is_changing.get() {
            self.way.pause();
            let owner = &mut *self.owner.borrow_mut();
            if !self.is_told && self.way.is_quiet() {
                self.is_told = true;
                owner.quiet += 1;
            }
            if owner.quiet < owner.ways {
                return;
            }
            owner.change(now);
            self.signal.is_changing.set(false);
            self.signal.epoch.set(self.signal.epoch.get().wrapping_add(1));
        }
        let owner = &mut *self.owner.borrow_mut();
        let (plan, number) = (owner.plan.clone(), self.number);
        match self.way.change(plan, |disk| owner.lane(disk, number)) {
            Ok((old, _)) => {
                old.account(&mut owner.session.graph);
                owner.layers.add(&old);
                // The graph knows it now.
                owner.told.get_mut(number).into_iter().for_each(|(_, usage)| usage.clear());
            }
            Err(_) => self.is_dead = true,
        }
        self.is_dead |= owner.is_dead;
        (self.due, self.wakes_at) = (owner.next(), owner.wakes_at());
        (self.is_told, self.epoch) = (false, self.signal.epoch.get());
    }

    /// Something is due, unless another lane has handled it.
    #[cold]
    fn happen(&mut self, now: Instant) {
        let owner = &mut *self.owner.borrow_mut();
        // All: what happens now may be told only later.
        if owner.happen(now) | owner.must_look(now) | owner.must_rebuild(now) {
            self.signal.is_changing.set(true);
            self.turn.fetch_add(1, Ordering::Relaxed);
        }
        // While something is to be done the next one waits.
        (self.due, self.wakes_at) = match owner.due.is_empty() && !owner.is_piece_due {
            true => (owner.next(), owner.wakes_at()),
            false => (Instant::NEVER, Instant::NEVER),
        };
    }

    /// The number was raised: ways change, or counters are queried.
    #[cold]
    fn see(&mut self, now: Instant) {
        let turn = self.turn.load(Ordering::Relaxed);
        if self.must_change() {
            self.change(now);
        }
        if self.shown != turn {
            self.shown = turn;
            self.owner.borrow_mut().show(self.number, (turn, now), self.way.plan(now));
        }
        if !self.must_change() {
            self.seen = turn;
        }
    }

    fn must_change(&self) -> bool {
        self.signal.is_changing.get() || self.signal.epoch.get() != self.epoch
    }
}

impl Device for Lane {
    fn geometry(&self) -> &Geometry {
        self.way.geometry()
    }

    fn memory(&self) -> &DmaRegion {
        self.way.memory()
    }

    #[inline]
    fn submit(&mut self, request: &Request, now: Instant) -> Result<(), Refused> {
        if self.is_dead {
            return Err(Refused::Invalid(block::Error::Gone));
        }
        self.way.submit(request, now)
    }

    #[inline]
    fn ring(&mut self, now: Instant) {
        self.way.ring(now);
    }

    #[inline]
    fn poll(&mut self, now: Instant) -> Option<Completion> {
        let completion = self.way.poll(now);
        while let Some(incident) = self.way.incident() {
            self.tell(incident);
        }
        if now >= self.due {
            self.happen(now);
        }
        if self.turn.load(Ordering::Relaxed) == self.seen {
            return completion;
        }
        self.see(now);
        completion.or_else(|| self.way.poll(now))
    }

    fn poll_at(&self) -> Option<Instant> {
        // What is under way needs time to pass.
        let is_asked = self.signal.is_changing.get() && !self.is_told && self.way.is_quiet();
        if is_asked || self.signal.epoch.get() != self.epoch {
            return Some(Instant::START);
        }
        let due = (self.wakes_at != Instant::NEVER).then_some(self.wakes_at);
        [due, self.way.poll_at()].into_iter().flatten().min()
    }
}
