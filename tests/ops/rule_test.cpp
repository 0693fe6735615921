// The rules of ops/check.h, generated from the table of cases: every case obeys its operator's rule at every precision, and what
// is changed in a slot of a case is refused wherever the contract does not leave it free.

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "case_runner.h"
#include "op_case.h"
#include "ops/check.h"
#include "ops/dense/dense.h"

namespace millrace::ops::cases {
namespace {

using tensor::DType;

constexpr const char* kLayer = "analysts.0";

/// What contracts leave free, as "slot.axis": k, g, rows, cols: one more or less; floating: another type that `real` may stand
/// for; dtype: other types beside those; absent: an optional slot. A change may be free in some records of an operator only.
const std::map<std::string, std::string> kFree = {
    {"add", "b.absent"},
    {"attention_backward", "lengths.rows"},
    {"attention_cached", "cache.rows"},
    {"attention_forward", "lengths.rows"},
    {"batch_apply", "bias.absent"},
    {"batch_apply_backward", "dbeta.absent dgamma.absent"},
    {"batch_moments", "z.rows"},
    {"binary_cross_entropy", "dlogit.absent logit.floating"},
    {"choose_nodes", "grads.cols"},
    {"column_sum", "in.cols in.floating in.rows out.cols second.absent second.cols third.absent third.cols"},
    {"conv_backward", "dbias.absent dx.absent"},
    {"conv_forward", "bias.absent chosen.absent"},
    {"copy", "in.dtype in.floating out.dtype out.floating"},
    {"cosine_diversity", "dout.absent o.cols o.floating o.g o.rows"},
    {"cross_entropy", "dlogits.absent logits.cols logits.floating predicted.absent weights.absent"},
    {"dense_backward", "dbeta.absent dbias.absent dgamma.absent"},
    {"dense_forward", "bias.absent saved.absent y.floating"},
    {"exchange", "gradients.cols gradients.floating"},
    {"fill", "out.cols out.dtype out.floating out.g out.k out.rows"},
    {"flow_begin", "e.floating e.rows flow.rows"},
    {"flow_begin_backward", "de.cols de.floating de.rows dflow.rows"},
    {"flow_clear",
     "out0.cols out0.floating out0.rows out1.cols out1.floating out1.rows out2.absent out2.cols out2.floating out2.rows"},
    {"flow_move", "u.floating"},
    {"flow_move_backward", "du.floating"},
    {"flow_neuron_backward", "dout.cols dout.floating"},
    {"flow_neuron_forward", "out.cols out.floating params.cols"},
    {"flow_scatter", "flow.rows surface.rows"},
    {"flow_scatter_backward", "dsurface.rows"},
    {"flow_spawn_state", "h.cols h.floating"},
    {"flow_spawn_state_backward", "dh.cols"},
    {"gather_features", "labels.rows table.rows x.floating"},
    {"gather_images", "images.rows x.floating x.rows"},
    {"gather_rows", "out.floating out.rows table.rows"},
    {"gather_windows", "out.cols ranges.rows stream.rows"},
    {"grad_norm", "grads.cols segments.rows"},
    {"fold_running", "all.cols all.rows value.cols value.floating"},
    {"fold_sums", "all.cols all.rows"},
    {"gru_backward", "flag.absent mask.absent"},
    {"gru_forward", "flag.absent gates.absent mask.absent w_ih.cols x.cols"},
    {"layernorm_backward", "dbeta.absent dgamma.absent dresidual.absent dx.absent"},
    {"linear_dgrad", "dx.cols dx.floating w.cols"},
    {"linear_wgrad", "dbias.absent dw.cols x.cols"},
    {"loss_total", "total.floating values.rows weights.absent weights.cols"},
    {"masked_mean", "x.rows"},
    {"masked_mean_backward", "dx.rows"},
    {"mel_bands", "x.floating y.floating"},
    {"micro_end", "state.k"},
    {"mse", "dprediction.absent"},
    {"optimizer", "copy16.absent copy16.floating m.absent segments.rows"},
    {"part_end", "running.absent running.cols running.floating table.cols table.rows"},
    {"token_choose", "ids.cols logits.cols logits.floating logits.rows"},
    {"token_cross_entropy", "dlogits.absent ids.cols logits.cols logits.floating tally.absent total.absent"},
    {"token_embed", "table.rows y.floating"},
    {"token_embed_backward", "dbefore.absent dposition.absent dtable.absent dtable.rows dy.floating"},
    {"vocabulary_loss", "bias.absent dbias.absent dweight.absent dx.absent ids.cols tally.absent total.absent weight.rows"},
    {"weighted_cross_entropy", "dlogits.absent logits.floating total.absent"},
};

std::set<std::string> free_of(const OpDef& op) {
    std::set<std::string> words;
    const auto found = kFree.find(op.name);
    std::istringstream text(found == kFree.end() ? std::string() : found->second);
    for (std::string word; text >> word;) words.insert(word);
    return words;
}

bool is_floating(DType type) { return type != DType::i32 && type != DType::u8; }

struct Change {
    std::string axis;
    tensor::View view;
};

/// Everything that may be wrong with a view, one at a time.
std::vector<Change> changes_of(const tensor::View& view) {
    std::vector<Change> changes = {{"absent", {}}};
    const auto by = [&](const char* axis, std::int32_t tensor::View::*size, int more) {
        changes.push_back({axis, view});
        changes.back().view.*size += more;
        changes.back().view.stride_k += 8;
    };
    by("k", &tensor::View::k, 1);
    by("g", &tensor::View::g, 1);
    by("rows", &tensor::View::rows, 1);
    by("cols", &tensor::View::cols, 1);
    if (view.rows > 0) by("rows", &tensor::View::rows, -1);
    if (view.cols > 0) by("cols", &tensor::View::cols, -1);
    for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i32, DType::u8}) {
        if (type == view.dtype) continue;
        changes.push_back({is_floating(type) && is_floating(view.dtype) ? "floating" : "dtype", view});
        changes.back().view.dtype = type;
    }
    return changes;
}

std::string shape_of(const tensor::View& view) {
    std::ostringstream text;
    text << tensor::name_of(view.dtype) << " [" << view.k << ", " << view.g << ", " << view.rows << ", " << view.cols << "]";
    return text.str();
}

/// Calls body(record) with the record of every case of an operator, in all precisions.
template <class Body>
void for_each_record(const OpDef* op, Body&& body) {
    for (const OpCase& op_case : op_cases())
        for (const Precision precision : {Precision::f64, Precision::f32, Precision::bf16, Precision::f16}) {
            if (op_case.op != op) continue;
            Record record = record_of(op_case, precision);
            record.layer = kLayer;
            SCOPED_TRACE(op_case.name);
            body(record);
        }
}

/// Calls body(record, slot, change) with the record changed in every way, one at a time.
template <class Body>
void for_each_change(const Record& right, Body&& body) {
    for (int slot = 0; slot < right.op->slot_count(); ++slot) {
        const tensor::View was = right.slots[static_cast<std::size_t>(slot)];
        if (!was.present()) continue;
        for (const Change& change : changes_of(was)) {
            Record wrong = right;
            wrong.slots[static_cast<std::size_t>(slot)] = change.view;
            body(wrong, slot, change);
        }
    }
}

class OperatorRule : public ::testing::TestWithParam<const OpDef*> {};

TEST_P(OperatorRule, AcceptsEveryCaseAtEveryPrecision) {
    for_each_record(GetParam(), [](const Record& record) {
        const base::Status status = check_record(record);
        EXPECT_TRUE(status.ok()) << status.error().text();
    });
}

TEST_P(OperatorRule, RefusesWhatTheContractDoesNotLeaveFree) {
    const OpDef& op = *GetParam();
    std::set<std::string> accepted;
    int refused = 0;
    for_each_record(&op, [&](const Record& right) {
        for_each_change(right, [&](const Record& changed, int slot, const Change& change) {
            const base::Status status = check_record(changed);
            if (status.ok()) {
                accepted.insert(std::string(op.slot(slot).name) + "." + change.axis);
                return;
            }
            ++refused;
            const std::string text = status.error().text();
            EXPECT_EQ(text.rfind(std::string(kLayer) + ": " + op.name, 0), 0u) << text;
            EXPECT_NE(text.find(op.slot(slot).name), std::string::npos) << text;
            const std::string found = change.view.present() ? shape_of(change.view) : " is missing";
            EXPECT_NE(text.find(found), std::string::npos) << text;
        });
    });
    EXPECT_EQ(accepted, free_of(op));
    EXPECT_GT(refused, 0) << "the rule checks nothing";
}

/// What prepare() of a backend answers to the record, bound to memory that no kernel touches.
base::Status prepare(Backend& backend, const Record& record) {
    static std::byte memory[8];
    Bound bound;
    bound.record = &record;
    for (std::size_t slot = 0; slot < record.slots.size(); ++slot) {
        const tensor::View& v = record.slots[slot];
        if (v.present()) bound.operands[slot] = {memory, v.dtype, v.k, v.g, v.rows, v.cols, v.stride_k, v.stride_g, v.stride_row};
    }
    MILLRACE_TRY(backend.prepare({&bound, 1}, {}));
    return base::ok();
}

TEST_P(OperatorRule, IsAppliedByEveryBackend) {
    const OpDef& op = *GetParam();
    for (const DeviceKind kind : {DeviceKind::ref, DeviceKind::cpu, DeviceKind::cuda}) {
        if (kind == DeviceKind::cuda && !cuda_available().ok()) continue;
        const auto backend = make_backend(kind, {.threads = 1}).value();
        const Precision precision = kind == DeviceKind::ref ? Precision::f64 : Precision::f32;
        for (const OpCase& op_case : op_cases()) {
            if (op_case.op != &op) continue;
            for_each_change(record_of(op_case, precision), [&](const Record& changed, int slot, const Change& change) {
                const base::Status expected = check_record(changed);
                if (expected.ok()) return;
                const base::Status status = prepare(*backend, changed);
                ASSERT_FALSE(status.ok()) << name_of(kind) << " takes " << op_case.name << " with " << change.axis << " of "
                                          << op.slot(slot).name << " changed";
                EXPECT_NE(status.error().text().find(op_case.name + ": " + op.name), std::string::npos) << status.error().text();
            });
        }
    }
}

/// A sum of two activations that is right.
Record sum_of(Precision precision) {
    OpCase sum;
    sum.name = "sum";
    sum.op = &add::kDef;
    sum.params = AddParams{};
    for (const int slot : {add::a, add::b, add::out}) sum.slot(slot, Element::real, 2, 3, 5, 7, poison());
    return record_of(sum, precision);
}

std::string problem_of(const Record& record, std::span<const DType> reals = kAnyReal) {
    const std::string text = check_record(record, reals).error().text();
    return text.substr(0, text.find("; its slots: "));
}

TEST(Rule, NamesLayerSlotBothShapesAndAllSlots) {
    Record record = sum_of(Precision::bf16);
    EXPECT_TRUE(check_record(record).ok());
    record.slots[add::b].cols = 6;
    EXPECT_EQ(check_record(record).error().text(),
              "sum: add.b must be bf16 [2, 3, 5, 7], got bf16 [2, 3, 5, 6]; its slots: a bf16 [2, 3, 5, 7], b bf16 [2, 3, 5, 6], "
              "out bf16 [2, 3, 5, 7]");
}

TEST(Rule, AWindowOfColumnsMustReachAsFarAsTheWeights) {
    namespace at = linear_wgrad;
    OpCase product;
    product.name = "head";
    product.op = &at::kDef;
    product.params = LinearGradParams{};
    product.slot(at::dz, Element::real, 1, 1, 8, 3, poison()).slot(at::dw, Element::stat, 1, 1, 3, 5, poison());
    product.slot(at::x, Element::real, 1, 1, 8, 6, poison());
    Record record = record_of(product, Precision::bf16);
    EXPECT_EQ(problem_of(record), "");
    record.slots[at::x].cols = 4;
    EXPECT_EQ(check_record(record).error().text(),
              "head: linear_wgrad: x has fewer columns than dw; its slots: dz bf16 [1, 1, 8, 3], x bf16 [1, 1, 8, 4], dw f32 [1, "
              "1, 3, 5]");
}

TEST(Rule, ABackendTakesItsOwnPrecisionsAlone) {
    constexpr DType kSingle[] = {DType::f32};
    EXPECT_EQ(problem_of(sum_of(Precision::f32), kSingle), "");
    EXPECT_EQ(problem_of(sum_of(Precision::bf16), kSingle), "sum: add.a must be f32 [2, 3, 5, 7], got bf16 [2, 3, 5, 7]");
    const auto processor = make_backend(DeviceKind::cpu, {.threads = 1}).value();
    EXPECT_FALSE(prepare(*processor, sum_of(Precision::bf16)).ok());
}

TEST(Rule, RefusesWhatNoOperatorTakes) {
    const auto changed = [](auto&& change) {
        Record record = sum_of(Precision::f32);
        change(record);
        return problem_of(record);
    };
    EXPECT_EQ(changed([](Record& r) { r.slots[add::out].stride_k = 0; }),
              "sum: add.out is written, but members or groups share it");
    EXPECT_EQ(changed([](Record& r) { r.slots[add::a].stride_g = 0; }), "");
    EXPECT_EQ(changed([](Record& r) { r.accumulate = 1u << add::a; }), "sum: add.a cannot be added to");
    EXPECT_EQ(changed([](Record& r) { r.slots[add::slots] = r.slots[add::a]; }),
              "sum: add: the record has more slots than its operator");
    EXPECT_EQ(changed([](Record& r) { r.condition = r.slots[add::a]; }), "sum: add: the condition must be i32 [K, 1, 1, 1]");
    EXPECT_EQ(changed([](Record& r) {
                  r.op = &fill::kDef;
                  r.slots[fill::out] = r.slots[add::out];
                  for (const int slot : {add::b, add::out}) r.slots[static_cast<std::size_t>(slot)] = {};
              }),
              "sum: fill: the parameters are of another type");
}

INSTANTIATE_TEST_SUITE_P(Table, OperatorRule, ::testing::ValuesIn(definitions()),
                         [](const auto& given) { return std::string(given.param->name); });

}  // namespace
}  // namespace millrace::ops::cases
