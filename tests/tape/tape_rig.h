#pragma once
// A store on one backend and programs in it, for tests of the tape.

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/backend.h"
#include "ops/pointwise/pointwise.h"
#include "tape/program.h"

namespace millrace::tape {

struct Place {
    const char* name;
    ops::DeviceKind device;
    Precision precision;
};
inline const Place kRefPlace{"ref", ops::DeviceKind::ref, Precision::f64};
inline const Place kCpuPlace{"cpu", ops::DeviceKind::cpu, Precision::f32};

struct TapeRig {
    explicit TapeRig(const Place& place = kRefPlace, int members = 1) : backend(ops::make_backend(place.device, {}).value()) {
        options.precision = place.precision;
        options.members = members;
        options.ring_capacity = 8;
        restart();
    }
    /// A new store, after `options` changed.
    void restart() { store = std::make_unique<Store>(*backend, options); }

    /// Allocates and draws the parameters of member k from seed 40 + k.
    void allocate() {
        auto allocated = store->allocate();
        ASSERT_TRUE(allocated.ok()) << allocated.error().text();
        std::vector<std::uint64_t> seeds;
        for (int k = 0; k < store->members(); ++k) seeds.push_back(static_cast<std::uint64_t>(40 + k));
        store->initialize(seeds);
    }
    /// Plans and prepares what the builder holds, in an arena full of NaN: reading what was never written shows.
    void prepare(Builder&& builder) {
        arena = std::make_unique<Arena>(*backend);
        program = std::make_unique<Program>("test", *store, std::move(builder), *arena);
        ASSERT_TRUE(arena->allocate().ok());
        const std::vector<unsigned char> poison(static_cast<std::size_t>(arena->size().activations), 0xff);
        backend->upload(arena->data(), poison.data(), poison.size());
        auto prepared = program->prepare();
        ASSERT_TRUE(prepared.ok()) << prepared.error().text();
    }
    [[nodiscard]] tensor::DType real() const { return real_of(options.precision); }
    /// A data buffer as every member sees it.
    [[nodiscard]] tensor::View for_all(tensor::View data) const {
        data.k = store->members();
        return data;
    }

    std::unique_ptr<ops::Backend> backend;
    StoreOptions options;
    std::unique_ptr<Store> store;
    std::unique_ptr<Arena> arena;
    std::unique_ptr<Program> program;
};

inline ops::Record copy_record(const tensor::View& in, const tensor::View& out) {
    ops::Record record{&ops::copy::kDef, ops::CopyParams{}, {}, 0, "copy"};
    record.slots[ops::copy::in] = in;
    record.slots[ops::copy::out] = out;
    return record;
}

/// out (+) = a.
inline ops::Record add_record(const tensor::View& a, const Builder::Target& out) {
    ops::Record record{&ops::add::kDef, ops::AddParams{}, {}, 0, "add"};
    record.slots[ops::add::a] = a;
    record.slots[ops::add::out] = out.view;
    if (out.accumulate) record.accumulate = 1u << ops::add::out;
    return record;
}

}  // namespace millrace::tape
