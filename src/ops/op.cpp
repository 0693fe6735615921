#include "ops/op.h"

#include <algorithm>
#include <cstring>

namespace millrace::ops {
namespace {

constinit const OpDef* newest = nullptr;

}  // namespace

OpDef::OpDef(const OpTraits& traits) : OpTraits(traits), next(newest) { newest = this; }

std::vector<const OpDef*> definitions() {
    std::vector<const OpDef*> all;
    for (const OpDef* def = newest; def != nullptr; def = def->next)
        if (def->slot_of == nullptr) all.push_back(def);
    std::sort(all.begin(), all.end(), [](const OpDef* a, const OpDef* b) { return std::strcmp(a->name, b->name) < 0; });
    return all;
}

}  // namespace millrace::ops
