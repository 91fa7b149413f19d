mod builder;
mod damage;
mod journal;
mod lowest;
