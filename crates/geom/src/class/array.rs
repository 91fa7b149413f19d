//! Common code of STRIPE and CONCAT: an array that needs all of its components.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use flysch_api::block;
use flysch_wire::geom::Name;

use super::{Class, Config, News, Object, guard, write_last};
use crate::access::Access;
use crate::error::{GeomError, Kind};
use crate::graph::Graph;
use crate::io::{Io, Shape};
use crate::object::{ConsumerId, GeomId, ProviderId};
use crate::record::Taste;
use crate::route::{Leg, Route};

/// How data is distributed over the components.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// In turn, this many bytes at a time.
    Stripe(u64),
    /// One component after the other.
    Concat,
}

/// What a component records about itself and the array.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) id: u32,
    pub(super) number: u16,
    pub(super) all: u16,
    pub(super) layout: Layout,
    /// Its position was recorded by `label`; otherwise it was passed to `create`.
    pub(super) automatic: bool,
}

/// One component.
#[derive(Clone, Copy, Debug)]
struct Component {
    consumer: ConsumerId,
    /// First byte of the array that is on it, for CONCAT.
    start: u64,
    /// Number of bytes used.
    length: u64,
}

/// The state of a geom.
#[derive(Debug)]
pub(super) struct Array {
    id: u32,
    layout: Layout,
    automatic: bool,
    /// Whether the number of components is known. All components of a stripe record it; for a
    /// concatenation the first one decides, because an interrupted append may have reached only the
    /// others.
    is_counted: bool,
    components: Vec<Option<Component>>,
}

/// What a component's metadata contains besides the name, the id and the layout.
pub(super) struct Place {
    pub(super) number: u16,
    pub(super) all: u16,
    /// The only provider this may be.
    pub(super) provider: Option<Name<16>>,
    pub(super) provider_size: u64,
}

/// Writes metadata to the providers: `emit` fills the last sector of each. The array exists from
/// then on.
pub(super) fn label(
    graph: &mut Graph,
    class: &'static dyn Class,
    under: &[ProviderId],
    (hardcode, force): (bool, bool),
    emit: impl Fn(&Place, &mut [u8]),
) -> Result<(), GeomError> {
    for &provider in under {
        guard::last_sector_unless(graph, class.name(), provider, force)?;
    }
    for (number, &provider) in under.iter().enumerate() {
        let there = &graph[provider];
        let place = Place {
            number: number as u16,
            all: under.len() as u16,
            provider: hardcode.then(|| Name::new(&there.name)).flatten(),
            provider_size: there.media_size,
        };
        write_last(graph, provider, |sector| emit(&place, sector))?;
    }
    graph.settle();
    Ok(())
}

/// Joins the providers without writing anything: `part` describes the first of them.
pub(super) fn create(
    graph: &mut Graph,
    class: &'static dyn Class,
    under: &[ProviderId],
    mut part: Part,
) -> Result<(), GeomError> {
    for (number, &provider) in under.iter().enumerate() {
        guard::in_use(graph, provider)?;
        part.number = number as u16;
        join(graph, class, provider, &part)?;
    }
    graph.settle();
    Ok(())
}

/// The metadata in the last sector of a provider, or the result of tasting if there is none.
pub(super) fn read<M>(
    graph: &mut Graph,
    class: &'static dyn Class,
    provider: ProviderId,
    (magic, len): (&[u8], usize),
    parse: fn(&[u8]) -> Result<M, flysch_wire::WireError>,
) -> Result<M, Taste> {
    let sector = graph.peek_last(provider).map_err(|error| Taste::passed(error.to_string()))?;
    let class = class.name();
    parse(&sector).map_err(|error| {
        if !sector.starts_with(magic) {
            return Taste::passed(format!("no label of {class} in the last sector"));
        }
        let at = graph[provider].last_sector();
        Taste::refused(format!("its label of {class} is not sound: {error}"), at, len as u64)
    })
}

/// Adds a component; the last one makes the array complete. A component without metadata is used to
/// its last sector.
pub(super) fn join(
    graph: &mut Graph,
    class: &'static dyn Class,
    under: ProviderId,
    part: &Part,
) -> Result<GeomId, GeomError> {
    let refuse = |cause: String| Err(GeomError::new(Kind::Invalid, &part.name, cause));
    let known = graph.objects().geoms_of(class.name()).find(|(_, geom)| geom.name == part.name);
    let geom = match known.map(|(id, _)| id) {
        Some(geom) => geom,
        None => {
            let geom = graph.new_geom(class, part.name.clone());
            let components = vec![None; usize::from(part.all)];
            let Part { id, layout, automatic, .. } = *part;
            let is_counted = layout != Layout::Concat;
            graph.set_state(geom, Array { id, layout, automatic, is_counted, components });
            geom
        }
    };
    let array = graph.state::<Array>(geom).expect("every geom of these classes has one");
    if array.id != part.id {
        return refuse(format!("another one of this name exists, with id {}", array.id));
    }
    if array.layout != part.layout {
        return refuse("its components do not agree with each other".into());
    }
    count(graph, geom, part)?;
    let array = graph.state::<Array>(geom).expect("it was there");
    if array.components[usize::from(part.number)].is_some() {
        return refuse(format!("component {} is already present", part.number));
    }
    let consumer = graph.new_consumer(geom);
    let attached = graph.attach(consumer, under);
    if let Err(error) = attached {
        graph.drop_consumer(consumer);
        forget_empty(graph, geom);
        return Err(error);
    }
    let component = Component { consumer, start: 0, length: 0 };
    let array = graph.state_mut::<Array>(geom).expect("it was there");
    array.components[usize::from(part.number)] = Some(component);
    if array.is_counted && array.components.iter().all(Option::is_some) {
        complete(graph, geom)?;
    }
    Ok(geom)
}

/// Takes over the number of components from a component's metadata. Components beyond the number
/// that the first component of a concatenation records were being added when power was lost.
fn count(graph: &mut Graph, geom: GeomId, part: &Part) -> Result<(), GeomError> {
    let refuse = |cause: String| Err(GeomError::new(Kind::Invalid, &part.name, cause));
    let array = graph.state_mut::<Array>(geom).expect("it was there");
    let (all, known) = (usize::from(part.all), array.components.len());
    let decides = array.layout == Layout::Concat && part.number == 0;
    match (array.is_counted, decides) {
        (true, _) if array.layout == Layout::Concat && usize::from(part.number) >= known => {
            let cause = format!("its first component counts {known}: add this one again");
            return refuse(cause);
        }
        (true, false) if array.layout != Layout::Concat && known != all => {
            return refuse("its components do not agree with each other".into());
        }
        (true, _) => return Ok(()),
        (false, true) => array.is_counted = true,
        (false, false) if all <= known => return Ok(()),
        (false, false) => {}
    }
    let surplus = array.components.get(all..).unwrap_or_default().iter().flatten();
    let surplus: Vec<ConsumerId> = surplus.map(|component| component.consumer).collect();
    array.components.resize(all, None);
    for consumer in surplus {
        let name = graph[consumer].provider.map(|provider| graph[provider].name.clone());
        let name = name.unwrap_or_default();
        graph.record.say(format!("{}: the first component does not count {name}", part.name));
        graph.drop_consumer(consumer);
    }
    Ok(())
}

/// For a complete array: whether its components are labelled, and their providers in order.
pub(super) fn whole(graph: &Graph, geom: GeomId) -> Result<(bool, Vec<ProviderId>), GeomError> {
    let name = &graph[geom].name;
    let busy = |cause: String| GeomError::new(Kind::Busy, name, cause);
    let missing = || GeomError::not_found(name, "geom with components");
    let array = graph.state::<Array>(geom).ok_or_else(missing)?;
    if let Some(open) = graph[geom].providers.iter().find(|&&it| graph[it].access != Access::NONE) {
        return Err(busy(format!("is open ({}); close it first", graph[*open].access)));
    }
    let under = array.components.iter().map(|place| graph[place.as_ref()?.consumer].provider);
    let under: Option<Vec<ProviderId>> = under.collect();
    let under = under.filter(|_| array.is_counted);
    under.map(|under| (array.automatic, under)).ok_or_else(|| busy("is not complete".into()))
}

/// All components are there: the provider appears.
fn complete(graph: &mut Graph, geom: GeomId) -> Result<(), GeomError> {
    let array = graph.state::<Array>(geom).expect("it was there");
    let (layout, automatic) = (array.layout, array.automatic);
    let under: Vec<_> = array
        .components
        .iter()
        .flatten()
        .filter_map(|component| graph[component.consumer].provider)
        .map(|provider| (graph[provider].media_size, graph[provider].sector_size))
        .collect();
    let sector_size = under.iter().map(|(_, sector)| *sector).max().unwrap_or(512);
    let usable = |&(size, sector): &(u64, u32)| {
        size.saturating_sub(if automatic { u64::from(sector) } else { 0 })
    };
    let lengths: Vec<u64> = match layout {
        Layout::Stripe(unit) => {
            let least = under.iter().map(usable).min().unwrap_or(0) / unit * unit;
            under.iter().map(|_| least).collect()
        }
        Layout::Concat => {
            let sector = u64::from(sector_size);
            under.iter().map(|under| usable(under) / sector * sector).collect()
        }
    };
    let (unit, name) = (layout.unit(), &graph[geom].name);
    let Some(media_size) = lengths.iter().try_fold(0, |sum: u64, &length| sum.checked_add(length))
    else {
        return Err(GeomError::invalid(name, "its components are too large"));
    };
    if media_size == 0 {
        return Err(GeomError::invalid(name, "its components are too small"));
    }
    let shape = Shape { media_size, sector_size, stripe_size: unit, stripe_offset: 0 };
    let name = format!("{}/{name}", graph[geom].class.name().to_ascii_lowercase());
    let array = graph.state_mut::<Array>(geom).expect("it was there");
    let mut start = 0;
    for (component, length) in array.components.iter_mut().flatten().zip(lengths) {
        (component.start, component.length) = (start, length);
        start += length;
    }
    graph.new_provider(geom, name, shape).map(drop)
}

impl Layout {
    fn unit(self) -> u64 {
        match self {
            Self::Stripe(unit) => unit,
            Self::Concat => 0,
        }
    }
}

/// Where byte `offset` of a stripe over `count` components is: the component, the byte on it, and
/// how many bytes follow contiguously.
#[inline]
#[must_use]
pub fn place(unit: u64, count: u64, offset: u64) -> (usize, u64, u64) {
    let (turn, inside) = (offset / unit, offset % unit);
    ((turn % count) as usize, turn / count * unit + inside, unit - inside)
}

/// Performs a request on the components.
pub(super) fn start(
    graph: &mut Graph,
    provider: ProviderId,
    mut io: Io<'_>,
) -> Result<(), block::BlockError> {
    let geom = graph[provider].geom;
    let array = graph.state::<Array>(geom).ok_or(block::BlockError::Gone)?;
    let (layout, components) = (array.layout, array.components.clone());
    let components: Vec<Component> = components.into_iter().flatten().collect();
    if matches!(io, Io::Flush) {
        return components.iter().try_for_each(|component| graph.io(component.consumer, Io::Flush));
    }
    let (offset, length) = (io.offset(), io.len());
    let mut done = 0;
    while done < length {
        let at = offset + done;
        let (component, there, room) = match layout {
            Layout::Stripe(unit) => {
                let (number, there, room) = place(unit, components.len() as u64, at);
                (components.get(number), there, room)
            }
            Layout::Concat => {
                let found =
                    components.iter().find(|c| at - c.start.min(at) < c.length && at >= c.start);
                let (start, length) = found.map_or((0, 0), |c| (c.start, c.length));
                (found, at - start, length - (at - start).min(length))
            }
        };
        let component = component.ok_or(block::BlockError::OutOfRange)?;
        let now = room.min(length - done);
        if now == 0 {
            return Err(block::BlockError::OutOfRange);
        }
        graph.io(component.consumer, io.part(done, now, there))?;
        done += now;
    }
    Ok(())
}

/// Where queued requests go.
pub(super) fn route(graph: &Graph, provider: ProviderId) -> Option<Route> {
    let array = graph.state::<Array>(graph[provider].geom)?;
    let components = array.components.iter().copied();
    let components: Vec<Component> = components.collect::<Option<_>>()?;
    Some(match array.layout {
        Layout::Stripe(size) => {
            let legs = components.iter().map(|it| Leg::Consumer(it.consumer, 0)).collect();
            Route::Stripe { size, legs }
        }
        Layout::Concat => {
            let leg = |it: &Component| (Leg::Consumer(it.consumer, 0), it.length);
            Route::Concat(components.iter().map(leg).collect())
        }
    })
}

/// A component is gone, or was written by somebody else.
pub(super) fn told(graph: &mut Graph, news: News) -> bool {
    match news {
        News::Orphaned(consumer) | News::Spoiled(consumer) => lose(graph, consumer),
        News::Resized(_) | News::Failed(..) | News::Settled => return false,
    }
    true
}

/// A component is gone: the provider goes too, the others wait for it.
fn lose(graph: &mut Graph, consumer: ConsumerId) {
    let geom = graph[consumer].geom;
    for provider in graph[geom].providers.clone() {
        graph.wither_provider(provider, block::BlockError::Gone);
    }
    if let Some(array) = graph.state_mut::<Array>(geom) {
        for place in &mut array.components {
            if place.is_some_and(|component| component.consumer == consumer) {
                *place = None;
            }
        }
    }
    graph.settle_orphans();
    if graph.objects().consumer(consumer).is_some() {
        graph.drop_consumer(consumer);
    }
    forget_empty(graph, geom);
}

fn forget_empty(graph: &mut Graph, geom: GeomId) {
    if graph[geom].consumers.is_empty() {
        graph.wither_geom(geom, block::BlockError::Gone);
    }
}

/// What listings show.
pub(super) fn config(graph: &Graph, object: Object) -> Config {
    let geom = match object {
        Object::Geom(geom) => geom,
        Object::Consumer(consumer) => graph[consumer].geom,
        Object::Provider(_) => return Vec::new(),
    };
    let Some(array) = graph.state::<Array>(geom) else { return Vec::new() };
    if let Object::Consumer(consumer) = object {
        let is_it = |place: &Option<Component>| place.is_some_and(|c| c.consumer == consumer);
        let Some(number) = array.components.iter().position(is_it) else { return Vec::new() };
        let component = array.components[number].expect("it was found");
        return match array.layout {
            Layout::Stripe(_) => vec![("Number", number.to_string())],
            Layout::Concat => vec![
                ("End", (component.start + component.length).to_string()),
                ("Start", component.start.to_string()),
            ],
        };
    }
    let online = array.components.iter().flatten().count();
    let mut config = vec![("ID", array.id.to_string())];
    if let Layout::Stripe(unit) = array.layout {
        config.push(("Stripesize", unit.to_string()));
    }
    let is_up = online == array.components.len();
    config.push(("Type", if array.automatic { "AUTOMATIC" } else { "MANUAL" }.into()));
    config.push(("Status", format!("Total={}, Online={online}", array.components.len())));
    config.push(("State", if is_up { "UP" } else { "DOWN" }.into()));
    config
}

/// Takes a component that identifies itself by its last sector.
pub(super) fn taste(
    graph: &mut Graph,
    class: &'static dyn Class,
    under: ProviderId,
    (part, provider_size, hardcoded): (Part, u64, Option<String>),
) -> Taste {
    let there = &graph[under];
    let (at, sector) = (there.last_sector(), u64::from(there.sector_size));
    if provider_size != there.media_size {
        let text = format!(
            "metadata of {} {} is for {provider_size} bytes, this has {}",
            class.name(),
            part.name,
            there.media_size
        );
        return Taste::refused(text, at, sector);
    }
    if let Some(only) = hardcoded.filter(|only| *only != there.name) {
        let text = format!("metadata of {} {} is for {only} only", class.name(), part.name);
        return Taste::refused(text, at, sector);
    }
    match join(graph, class, under, &part) {
        Ok(_) => {
            let text = format!("component {} of {} of {}", part.number, part.all, part.name);
            Taste::claimed(text, at, sector)
        }
        Err(error) => Taste::refused(format!("{error}"), at, sector),
    }
}

/// Whether components can be used together: no duplicates, and compatible sector sizes.
pub(super) fn check(graph: &Graph, name: &str, under: &[ProviderId]) -> Result<(), GeomError> {
    if under.len() < 2 {
        return Err(GeomError::invalid(name, "needs two components or more"));
    }
    if under.len() > usize::from(u16::MAX) {
        return Err(GeomError::invalid(name, "has too many components"));
    }
    for (at, &provider) in under.iter().enumerate() {
        if under[..at].contains(&provider) {
            return Err(GeomError::invalid(&graph[provider].name, "is named twice"));
        }
    }
    let mut geoms =
        graph.objects().geoms().filter(|(_, geom)| !geom.withering && geom.name == name);
    if geoms
        .any(|(_, geom)| matches!(geom.class.name(), "STRIPE" | "CONCAT" | "MIRROR" | "MULTIPATH"))
    {
        let cause = "something of this name already exists";
        return Err(GeomError::new(Kind::Exists, name, cause));
    }
    Ok(())
}
