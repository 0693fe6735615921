#pragma once
// Functions that libraries of the program take from CUPTI, led through the probe.

namespace millrace::probe {

struct Import {
    const char* name;
    void* replacement;
};

/// Makes loaded libraries that need CUPTI call the replacements for these functions; those that look functions up by themselves
/// (dlsym) are not reached. Costs little when called again though no library was loaded since. Returns how many places were
/// changed.
unsigned replace_imports(const Import* imports, unsigned count);

}  // namespace millrace::probe
