mod builder;
mod damage;
mod guarded;
mod journal;
mod lowest;
mod table;
mod twice;
