"""The level burn-in: rounds of cold and hot load for minutes to days, kept in a file from which a cut run goes on."""
