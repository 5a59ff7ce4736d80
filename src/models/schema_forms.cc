#include "models/schema_forms.h"

#include <algorithm>
#include <cmath>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

namespace everwarm::models {
namespace {

constexpr SchemaTypes kObject = 1;
constexpr SchemaTypes kArray = 2;
constexpr SchemaTypes kString = 4;
constexpr SchemaTypes kNumber = 8;
constexpr SchemaTypes kInteger = 16;
constexpr SchemaTypes kBoolean = 32;
constexpr SchemaTypes kNull = 64;

using TypeTable = absl::flat_hash_map<std::string_view, SchemaTypes>;

const TypeTable& TypeNames() {
  static const auto* const names = new TypeTable{
      {"object", kObject}, {"array", kArray},     {"string", kString},
      {"number", kNumber}, {"integer", kInteger}, {"boolean", kBoolean},
      {"null", kNull}};
  return *names;
}

const TypeTable& Concerns() {
  static const auto* const concerns =
      new TypeTable{{"title", 0},
                    {"description", 0},
                    {"default", 0},
                    {"examples", 0},
                    {"deprecated", 0},
                    {"readOnly", 0},
                    {"writeOnly", 0},
                    {"$schema", 0},
                    {"$id", 0},
                    {"$anchor", 0},
                    {"$comment", 0},
                    {"$defs", 0},
                    {"definitions", 0},
                    {"properties", kObject},
                    {"required", kObject},
                    {"additionalProperties", kObject},
                    {"patternProperties", kObject},
                    {"unevaluatedProperties", kObject},
                    {"propertyNames", kObject},
                    {"minProperties", kObject},
                    {"maxProperties", kObject},
                    {"dependentRequired", kObject},
                    {"dependentSchemas", kObject},
                    {"dependencies", kObject},
                    {"items", kArray},
                    {"prefixItems", kArray},
                    {"additionalItems", kArray},
                    {"unevaluatedItems", kArray},
                    {"contains", kArray},
                    {"minContains", kArray},
                    {"maxContains", kArray},
                    {"minItems", kArray},
                    {"maxItems", kArray},
                    {"uniqueItems", kArray},
                    {"pattern", kString},
                    {"minLength", kString},
                    {"maxLength", kString},
                    {"contentEncoding", kString},
                    {"contentMediaType", kString},
                    {"contentSchema", kString},
                    {"format", kString | kNumber | kInteger},
                    {"minimum", kNumber | kInteger},
                    {"maximum", kNumber | kInteger},
                    {"exclusiveMinimum", kNumber | kInteger},
                    {"exclusiveMaximum", kNumber | kInteger},
                    {"multipleOf", kNumber | kInteger}};
  return *concerns;
}

bool Has(const SchemaJson& schema, const char* keyword) {
  return schema.contains(keyword);
}

bool HasKnownFormat(const SchemaJson& schema) {
  if (!Has(schema, "format") || !schema["format"].is_string()) {
    return false;
  }
  const std::string& format = schema["format"].get_ref<const std::string&>();
  return format == "date" || format == "time" || format == "date-time" ||
         format == "uuid";
}

// What a schema without a type is taken for; empty: anything.
std::string_view GuessedType(const SchemaJson& schema) {
  if (Has(schema, "properties") || (Has(schema, "additionalProperties") &&
                                    schema["additionalProperties"] != true)) {
    return "object";
  }
  if (Has(schema, "allOf")) {
    return "";
  }
  if (Has(schema, "items") || Has(schema, "prefixItems")) {
    return "array";
  }
  return Has(schema, "pattern") || Has(schema, "minLength") ||
                 Has(schema, "maxLength") || HasKnownFormat(schema)
             ? "string"
             : "";
}

std::vector<std::string_view> FollowedOfType(const SchemaJson& schema,
                                             SchemaTypes type) {
  if (type == kObject) {
    return {"type", "properties", "required", "additionalProperties"};
  }
  if (type == kArray) {
    const char* const items = Has(schema, "items") ? "items" : "prefixItems";
    if (Has(schema, items) && schema[items].is_array()) {
      return {"type", items};
    }
    return {"type", items, "minItems", "maxItems"};
  }
  if (type == kString) {
    if (Has(schema, "pattern")) {
      return {"type", "pattern"};
    }
    if (HasKnownFormat(schema)) {
      return {"type", "format"};
    }
    return {"type", "minLength", "maxLength"};
  }
  if (type == kInteger) {
    return {"type", Has(schema, "minimum") ? "minimum" : "exclusiveMinimum",
            Has(schema, "maximum") ? "maximum" : "exclusiveMaximum"};
  }
  return {"type"};
}

// Requires: neither a reference nor alternatives. An empty type: none.
SchemaForm FormOfType(const SchemaJson& schema, std::string_view type) {
  for (const char* const fixed : {"const", "enum"}) {
    if (Has(schema, fixed)) {
      return {kEveryType, {"type", fixed}};
    }
  }
  const auto found =
      TypeNames().find(type.empty() ? GuessedType(schema) : type);
  if (found == TypeNames().end()) {
    return {kEveryType, {"type"}};
  }
  return {found->second, FollowedOfType(schema, found->second)};
}

std::string_view TextOf(const SchemaJson& value) {
  return value.is_string()
             ? std::string_view(value.get_ref<const std::string&>())
             : std::string_view();
}

}  // namespace

SchemaTypes TypesNamed(const SchemaJson& name) {
  const auto found = TypeNames().find(TextOf(name));
  return found == TypeNames().end() ? 0 : found->second;
}

SchemaTypes TypesOf(const SchemaJson& value) {
  switch (value.type()) {
    case SchemaJson::value_t::object:
      return kObject;
    case SchemaJson::value_t::array:
      return kArray;
    case SchemaJson::value_t::string:
      return kString;
    case SchemaJson::value_t::boolean:
      return kBoolean;
    case SchemaJson::value_t::null:
      return kNull;
    case SchemaJson::value_t::number_float:
      return std::trunc(value.get<double>()) == value.get<double>()
                 ? kNumber | kInteger
                 : kNumber;
    default:
      return kNumber | kInteger;
  }
}

SchemaTypes ConcernsOf(std::string_view keyword) {
  const auto found = Concerns().find(keyword);
  return found == Concerns().end() ? kEveryType : found->second;
}

bool SchemaForm::Follows(std::string_view keyword) const {
  return std::find(followed.begin(), followed.end(), keyword) != followed.end();
}

SchemaForm FormOf(const SchemaJson& schema) {
  if (Has(schema, "$ref")) {
    return {kEveryType, {"$ref"}};
  }
  if (Has(schema, "oneOf") || Has(schema, "anyOf")) {
    SchemaForm form = {kEveryType, {"anyOf"}};
    if (Has(schema, "anyOf") && schema["anyOf"].is_array() &&
        std::all_of(schema["anyOf"].begin(), schema["anyOf"].end(),
                    [](const SchemaJson& one) {
                      return one.is_object() && one.contains("type");
                    })) {
      form.followed.push_back("type");
    }
    return form;
  }
  if (!Has(schema, "type")) {
    return FormOfType(schema, "");
  }
  if (!schema["type"].is_array()) {
    return FormOfType(schema, TextOf(schema["type"]));
  }
  SchemaForm form = {0, {}};
  for (const SchemaJson& type : schema["type"]) {
    const SchemaForm one = FormOfType(schema, TextOf(type));
    form.types |= one.types;
    form.followed.insert(form.followed.end(), one.followed.begin(),
                         one.followed.end());
  }
  return form;
}

std::string WhyNotFollowed(const SchemaJson& schema, std::string_view keyword) {
  if (keyword == "oneOf") {
    return "which is followed as 'anyOf', and more than one may fit";
  }
  if (keyword == "format" && !HasKnownFormat(schema)) {
    return "of a kind that is not known (date, time, date-time, duration, "
           "email, hostname, ipv4, ipv6, uri and uuid are)";
  }
  const bool of_length = keyword.ends_with("Length");
  for (const char* const other :
       {"$ref", "anyOf", "const", "enum", "pattern", "format"}) {
    const bool stronger = other != std::string_view("format")
                              ? other != std::string_view("pattern") ||
                                    of_length || keyword == "format"
                              : of_length;
    if (keyword != other && Has(schema, other) && stronger) {
      return absl::StrCat("which is not followed beside '", other, "'");
    }
  }
  return "which is not followed";
}

}  // namespace everwarm::models
