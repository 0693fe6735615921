#include "ops/parts/parts.h"

#include "ops/kernels.h"

namespace millrace::ops {

MILLRACE_OPERATOR(part_end, Phase::optimizer, {"state", update}, {"running", update}, {"table", update});
MILLRACE_OPERATOR(add_part, Phase::optimizer, {"gradients", update}, {"sums", update});
MILLRACE_OPERATOR(reduce, Phase::optimizer, {"data", update});
MILLRACE_OPERATOR(gather_parts, Phase::optimizer, {"table"}, {"all", write});
MILLRACE_OPERATOR(fold_sums, Phase::optimizer, {"all"}, {"state", update});
MILLRACE_OPERATOR(fold_running, Phase::optimizer, {"all"}, {"value", update});

void part_end::check(Checker& c) {
    const auto [k, g, rows, words] = c.shape(table);
    c.params<PartEndParams>();
    c.state(state, k).require({table}, i32, {k, 1, rows, words}).allow({running}, stat, {k, 1, 1, c.shape(running).cols});
    c.that(words >= part_words(c.shape(running).cols), "a row holds PartSums and what statistics moved by");
}
void add_part::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(gradients);
    c.params<AddPartParams>();
    c.require({gradients, sums}, stat, {k, 1, 1, cols});
}
void reduce::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(data);
    c.params<ReduceParams>();
    c.require({data}, stat, {k, 1, 1, cols});
}
void gather_parts::check(Checker& c) {
    const auto [k, g, rows, words] = c.shape(table);
    c.params<GatherPartsParams>();
    c.require({table}, i32, {k, 1, rows, words}).require({all}, i32, {k, 1, c.shape(all).rows, words});
    c.that(rows > 0 && c.shape(all).rows % rows == 0, "all tables have equally many rows");
}
static void check_fold(Checker& c) {
    const auto& p = c.params<FoldParams>();
    const auto [k, g, rows, words] = c.shape(fold_sums::all);
    c.require({fold_sums::all}, Type::i32, {k, 1, rows, words});
    c.that(p.world > 0 && rows % static_cast<int>(p.world) == 0 && p.count <= static_cast<std::uint32_t>(rows),
           "the tables hold fewer micro-batches");
}
void fold_sums::check(Checker& c) {
    check_fold(c);
    c.state(state, c.shape(all).k);
}
void fold_running::check(Checker& c) {
    check_fold(c);
    const auto [k, g, rows, cols] = c.shape(value);
    c.require({value}, stat, {c.shape(all).k, g, 1, cols});
    const auto end = c.params<FoldParams>().offset + static_cast<std::uint32_t>(g * cols);
    c.that(c.shape(all).cols >= part_words(static_cast<std::int32_t>(end)), "the tables hold fewer statistics");
}

}  // namespace millrace::ops
