#pragma once
// Records written in one expression, with the bits that say which slots add.

#include <initializer_list>
#include <string>
#include <utility>

#include "tape/builder.h"

namespace millrace::tape {

inline void write_to(ops::Record& record, int slot, const Builder::Target& target) {
    record.slots[static_cast<std::size_t>(slot)] = target.view;
    if (target.accumulate) record.accumulate |= 1u << slot;
}

/// What a slot names: a view, a value, or where a gradient goes. `{}` leaves the slot out.
struct Slot : Builder::Target {
    Slot() = default;
    Slot(const tensor::View& v, bool add = false) : Target{v, add} {}
    Slot(const Value& v) : Target{v.view, false} {}
    Slot(const Target& target) : Target(target) {}
};

/// A record whose slots are given in the order of the operator's contract.
template <class Params>
ops::Record record_of(const ops::OpDef* op, const Params& params, std::string layer, std::initializer_list<Slot> slots) {
    ops::Record record{op, params, {}, 0, std::move(layer)};
    int index = 0;
    for (const Slot& slot : slots) write_to(record, index++, slot);
    return record;
}

}  // namespace millrace::tape
