mod builder;
mod damage;
mod journal;
