"""The words of Muster: identifiers, resources, states, reasons and specs. Pure: no IO, no clock."""
