#pragma once
// Functions that libraries of the program take from others (CUPTI, the CUDA runtime), led through the probe.

namespace millrace::probe {

struct Import {
    const char* name;
    void* replacement;
    void* original = nullptr;   ///< only places that still lead there are changed; null: all
    bool also_unbound = false;  ///< and places that would at their first call
};

/// Which libraries and which of their imports are looked at, and what is known of them.
struct ImportWatch {
    const char* needed;  ///< part of the name of a library that they need
    const char* prefix;  ///< of the functions
    const char* other_prefix = nullptr;
    const char* only = nullptr;  ///< path of the only library that is looked at
    unsigned long long loads_seen = 0;
    unsigned unchanged = 0;
};

/// Makes loaded libraries call the replacements for these functions; those that look functions up by themselves (dlsym), or have
/// a copy inside, are not reached. Costs little when called again though no library was loaded since. Returns how many places
/// were changed. From one thread at a time; waits while another thread loads a library.
unsigned replace_imports(ImportWatch& watch, const Import* imports, unsigned count);

/// Before a fork: not while the list of libraries is read, since the child would have its lock for good.
void let_fork();

/// Handle of the library the process has loaded, from wherever, whose file name begins with `name`; null: none. Takes locks of
/// the loader: never from a callback.
void* loaded_library(const char* name);

}  // namespace millrace::probe
