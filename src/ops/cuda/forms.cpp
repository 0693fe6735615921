#include "ops/cuda/forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "base/log.h"

namespace millrace::ops::cuda {

namespace {

/// What predictions are about: in pinned runs one member, so that others beside it do not change its form.
std::vector<Bound> counted_records(const Context& c, std::span<const Bound> records) {
    std::vector<Bound> counted(records.begin(), records.end());
    for (Bound& bound : counted)
        for (std::size_t slot = 0; c.deterministic && slot < bound.operands.size(); ++slot)
            bound.operands[slot].k = std::min(bound.operands[slot].k, 1);
    return counted;
}

const Form* cheapest_form(const Context& c, std::span<const Form> forms, std::span<const Bound> records) {
    const std::vector<Bound> counted = counted_records(c, records);
    const Form* best = nullptr;
    double least = 0;
    for (const Form& form : forms) {
        if (form.refuses(c, records) != nullptr) continue;
        // Pinned runs replace the library by a plain kernel, which no prediction is about.
        if (c.deterministic && best != nullptr && form.name == std::string("library")) continue;
        const double time = form.predict(c, counted);
        if (best == nullptr || time < least) {
            best = &form;
            least = time;
        }
    }
    return best;
}

/// What a choice is about, in words that mean the same in another run: "dense_forward layers.*.linear1 1 x 1 bf16 64x128
/// 256x128". Layers that differ in their numbers alone share it.
std::string choice_of(const char* subject, std::span<const Bound> records) {
    const Bound& first = records.front();
    std::string text = std::string(subject) + ' ';
    for (const char letter : first.record->layer) {
        const bool digit = std::isdigit(static_cast<unsigned char>(letter)) != 0;
        if (!digit || text.back() != '*') text += digit ? '*' : letter;
    }
    if (records.size() > 1) text += fmt::format(" and {} more", records.size() - 1);
    const tensor::Operand& shape = first[0];
    text += fmt::format(" {} x {} {}", shape.k, shape.g, tensor::name_of(shape.dtype));
    for (const tensor::Operand& o : first.operands)
        if (o.present()) text += fmt::format(" {}x{}", o.rows, o.cols);
    return text;
}

/// The form that `names` has for that choice; null: none, or it does not apply.
const Form* named_form(const Context& c, const std::map<std::string, std::string>& names, const std::string& choice,
                       std::span<const Form> forms, std::span<const Bound> records) {
    const auto found = names.find(choice);
    if (found == names.end()) return nullptr;
    const auto form = std::ranges::find(forms, found->second, &Form::name);
    return form != forms.end() && form->refuses(c, records) == nullptr ? &*form : nullptr;
}

/// Of the first records of a choice.
void remember(const Context& c, const std::string& choice, const Form& form) {
    const auto asked = c.forms.find(choice);
    if (c.chosen.emplace(choice, form.name).second && asked != c.forms.end() && asked->second != form.name)
        MILLRACE_LOG(warn, "{} was done by {}, which cannot be had here: it is done by {}, and results may differ in rounding",
                     choice, asked->second, form.name);
}

}  // namespace

void take_forms(Context& c, const std::vector<std::string>& forms) {
    for (const std::string& form : forms) {
        const std::size_t at = form.rfind('=');
        if (at != std::string::npos) c.forms[form.substr(0, at)] = form.substr(at + 1);
    }
}

std::vector<std::string> chosen_forms(const Context& c) {
    std::vector<std::string> all;
    for (const auto& [choice, form] : c.chosen) all.push_back(choice + '=' + form);
    return all;
}

const Form* choose_form(const Context& c, const char* subject, std::span<const Form> forms, std::span<const Bound> records) {
    if (const Form* asked = named_form(c, c.forms, subject, forms, records)) return asked;
    if (c.deterministic) return cheapest_form(c, forms, records);
    const std::string choice = choice_of(subject, records);
    const Form* form = named_form(c, c.chosen, choice, forms, records);
    if (form == nullptr) form = named_form(c, c.forms, choice, forms, records);
    if (form == nullptr) form = cheapest_form(c, forms, records);
    if (form != nullptr) remember(c, choice, *form);
    return form;
}

KernelResult make_form(Context& c, const char* subject, std::span<const Form> forms, std::span<const Bound> records) {
    const Form* form = choose_form(c, subject, forms, records);
    if (form == nullptr) return base::Error{std::string("there is no way to do ") + subject + " here"};
    MILLRACE_LET(made, form->make(c, records));
    made->form = form->name;
    const std::vector<Bound> counted = counted_records(c, records);
    made->predicted = form->predict(c, counted);
    for (const Form& other : forms) {
        const char* refusal = other.refuses(c, records);
        made->offers.push_back({other.name, refusal ? refusal : "", refusal ? 0 : other.predict(c, counted)});
    }
    return KernelResult(std::move(made));
}

}  // namespace millrace::ops::cuda
