"""A model of the business: random walks over what people do, held against what a gateway received."""
