#pragma once
// Records written in one expression, with the bits that say which slots add.

#include <initializer_list>
#include <string>
#include <utility>

#include "tape/builder.h"

namespace millrace::tape {

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
    std::size_t index = 0;
    for (const Slot& slot : slots) {
        if (slot.accumulate) record.accumulate |= 1u << index;
        record.slots[index++] = slot.view;
    }
    return record;
}

}  // namespace millrace::tape
