"""A model of the business: random walks over what people do, compared with what a gateway received."""
