//! The graph as text: `confxml` and `confdot` of FreeBSD.

use alloc::format;
use alloc::string::String;
use core::fmt::Write;

use crate::graph::{Graph, Object};
use crate::object::{ConsumerId, GeomId, ProviderId};

/// Escapes text for XML.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        match character {
            '&' | '<' | '>' | '\'' | '"' => {
                let _ = write!(out, "&#x{:X};", u32::from(character));
            }
            '\t' | '\n' | '\r' => out.push(character),
            '\0'..=' ' if character != ' ' => out.push('?'),
            '\x7F'.. => {
                let mut bytes = [0; 4];
                for byte in character.encode_utf8(&mut bytes).bytes() {
                    let _ = write!(out, "&#x{byte:02X};");
                }
            }
            other => out.push(other),
        }
    }
    out
}

/// A quoted string of a dot file.
fn quoted(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            '\0'..='\x1F' | '\x7F' => out.push('?'),
            other => out.push(other),
        }
    }
    out
}

/// The whole graph in the form of `sysctl kern.geom.confxml`.
#[must_use]
pub fn confxml(graph: &Graph) -> String {
    let mut xml = Xml { graph, out: String::from("<mesh>\n") };
    for (number, class) in graph.classes().enumerate() {
        let _ = writeln!(xml.out, "  <class id=\"{}\">", class_id(number));
        let _ = writeln!(xml.out, "    <name>{}</name>", class.name());
        let all = graph.objects().geoms().rev();
        for (geom, _) in all.filter(|(_, geom)| geom.class.name() == class.name()) {
            xml.geom(geom, number);
        }
        xml.out.push_str("  </class>\n");
    }
    xml.out.push_str("</mesh>\n");
    xml.out
}

/// XML being written.
struct Xml<'g> {
    graph: &'g Graph,
    out: String,
}

impl Xml<'_> {
    fn geom(&mut self, geom: GeomId, class: usize) {
        let there = &self.graph[geom];
        let _ = writeln!(self.out, "    <geom id=\"{:#x}\">", geom.number());
        let _ = writeln!(self.out, "      <class ref=\"{}\"/>", class_id(class));
        let _ = writeln!(self.out, "      <name>{}</name>", escaped(&there.name));
        let _ = writeln!(self.out, "      <rank>{}</rank>", there.rank);
        match there.withering {
            true => self.out.push_str("      <wither/>\n"),
            false => self.config(Object::Geom(geom), "      "),
        }
        for &consumer in there.consumers.iter().rev() {
            self.consumer(consumer);
        }
        for &provider in there.providers.iter().rev() {
            self.provider(provider);
        }
        self.out.push_str("    </geom>\n");
    }

    fn config(&mut self, object: Object, indent: &str) {
        let geom = match object {
            Object::Geom(geom) => geom,
            Object::Provider(provider) => self.graph[provider].geom,
            Object::Consumer(consumer) => self.graph[consumer].geom,
        };
        let config = self.graph[geom].class.config(self.graph, object);
        if config.is_empty() {
            return;
        }
        let _ = writeln!(self.out, "{indent}<config>");
        for (name, value) in config {
            let _ = writeln!(self.out, "{indent}  <{name}>{}</{name}>", escaped(&value));
        }
        let _ = writeln!(self.out, "{indent}</config>");
    }

    fn consumer(&mut self, consumer: ConsumerId) {
        let there = &self.graph[consumer];
        let _ = writeln!(self.out, "\t<consumer id=\"{:#x}\">", consumer.number());
        let _ = writeln!(self.out, "\t  <geom ref=\"{:#x}\"/>", there.geom.number());
        if let Some(provider) = there.provider {
            let _ = writeln!(self.out, "\t  <provider ref=\"{:#x}\"/>", provider.number());
        }
        let _ = writeln!(self.out, "\t  <mode>{}</mode>", there.access);
        self.config(Object::Consumer(consumer), "\t  ");
        self.out.push_str("\t</consumer>\n");
    }

    fn provider(&mut self, provider: ProviderId) {
        let there = &self.graph[provider];
        let _ = writeln!(self.out, "\t<provider id=\"{:#x}\">", provider.number());
        let _ = writeln!(self.out, "\t  <geom ref=\"{:#x}\"/>", there.geom.number());
        let _ = writeln!(self.out, "\t  <mode>{}</mode>", there.access);
        let _ = writeln!(self.out, "\t  <name>{}</name>", escaped(&there.name));
        let _ = writeln!(self.out, "\t  <mediasize>{}</mediasize>", there.media_size);
        let _ = writeln!(self.out, "\t  <sectorsize>{}</sectorsize>", there.sector_size);
        let _ = writeln!(self.out, "\t  <stripesize>{}</stripesize>", there.stripe_size);
        let _ = writeln!(self.out, "\t  <stripeoffset>{}</stripeoffset>", there.stripe_offset);
        self.config(Object::Provider(provider), "\t  ");
        self.out.push_str("\t</provider>\n");
    }
}

/// The whole graph in the form of `sysctl kern.geom.confdot`, for `dot`.
#[must_use]
pub fn confdot(graph: &Graph) -> String {
    let mut out = String::from("digraph geom {\n");
    for (id, geom) in graph.objects().geoms() {
        let (class, name) = (geom.class.name(), quoted(&geom.name));
        let at = id.number();
        let _ = writeln!(out, "z{at:#x} [shape=box,label=\"{class}\\n{name}\\nr#{}\"];", geom.rank);
        for &consumer in &geom.consumers {
            let (number, access) = (consumer.number(), graph[consumer].access);
            let _ = writeln!(out, "z{number:#x} [label=\"{access}\"];");
            let _ = writeln!(out, "z{at:#x} -> z{number:#x};");
            if let Some(provider) = graph[consumer].provider {
                let _ = writeln!(out, "z{number:#x} -> z{:#x};", provider.number());
            }
        }
        for &provider in &geom.providers {
            let (number, there) = (provider.number(), &graph[provider]);
            let label = format!(
                "{}\\n{}\\nerr#{}\\nsector={}\\nstripe={}",
                quoted(&there.name),
                there.access,
                u8::from(there.error.is_some()),
                there.sector_size,
                there.stripe_size
            );
            let _ = writeln!(out, "z{number:#x} [shape=hexagon,label=\"{label}\"];");
            let _ = writeln!(out, "z{number:#x} -> z{at:#x};");
        }
    }
    out.push_str("}\n");
    out
}

/// Classes are not objects of the graph: their numbers are above all others.
fn class_id(number: usize) -> String {
    format!("{:#x}", 0x1_0000_0000_u64 + number as u64)
}
