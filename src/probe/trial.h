#pragma once
// Layers of the probe that can be left out to see what each costs (tools/probe-trial): words in MILLRACE_PROBE_TRIAL.

#include <stdlib.h>
#include <string.h>

namespace millrace::probe {

struct Trial {
    bool subscribe = true;    ///< "no-subscribe": CUPTI is not touched
    bool memory = true;       ///< "no-memory": allocations are not followed outside of windows
    bool activity = true;     ///< "no-activity": windows without records of devices
    bool kernels = true;      ///< "no-kernels": windows without those of kernels
    bool copies = true;       ///< "no-copies": windows without those of copies and sets
    bool callbacks = true;    ///< "no-callbacks": windows without records of calls
    bool sites = true;        ///< "no-sites"
    bool arguments = true;    ///< "no-arguments"
    bool graphs_too = false;  ///< "graphs-too": CUPTI goes though the program uses graphs
    bool returned = false;    ///< "returned": the subscription is given back right before
};

inline Trial read_trial() {
    Trial trial;
    const char* words = ::getenv("MILLRACE_PROBE_TRIAL");
    if (words == nullptr) return trial;
    const auto has = [&](const char* word) { return ::strstr(words, word) != nullptr; };
    trial.subscribe = !has("no-subscribe");
    trial.memory = !has("no-memory");
    trial.activity = !has("no-activity");
    trial.kernels = !has("no-kernels");
    trial.copies = !has("no-copies");
    trial.callbacks = !has("no-callbacks");
    trial.sites = !has("no-sites");
    trial.arguments = !has("no-arguments");
    trial.graphs_too = has("graphs-too");
    trial.returned = has("returned");
    return trial;
}

}  // namespace millrace::probe
