#include "tape/phase.h"

#include <optional>

#include "ops/fused.h"

namespace millrace::tape {
std::vector<Phase> phases_of(std::span<const ops::Record> records) {
    std::vector<Phase> phases;
    phases.reserve(records.size());
    Phase shared = Phase::forward;
    for (const ops::Record& record : records) {
        std::optional<Phase> own = ops::phase_of(record);
        if (own == Phase::forward && shared == Phase::backward) own = Phase::backward;  // computed again in the backward pass
        if (own == Phase::backward || own == Phase::optimizer) shared = *own;
        if (own == Phase::data) shared = Phase::forward;  // the next micro-batch
        phases.push_back(own.value_or(shared));
    }
    return phases;
}

}  // namespace millrace::tape
