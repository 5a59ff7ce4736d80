// Early returns for absl::Status and absl::StatusOr.
#ifndef EVERWARM_BASE_STATUS_MACROS_H_
#define EVERWARM_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns from the enclosing function when `expr` is not OK.
#define EW_RETURN_IF_ERROR(expr)                            \
  do {                                                      \
    if (absl::Status ew_status = (expr); !ew_status.ok()) { \
      return ew_status;                                     \
    }                                                       \
  } while (false)

#define EW_MACRO_JOIN_INNER(a, b) a##b
#define EW_MACRO_JOIN(a, b) EW_MACRO_JOIN_INNER(a, b)

// Binds the value of a StatusOr to `lhs`, or returns its status.
#define EW_ASSIGN_OR_RETURN(lhs, expr) \
  EW_ASSIGN_OR_RETURN_INNER(EW_MACRO_JOIN(ew_or_, __LINE__), lhs, expr)
#define EW_ASSIGN_OR_RETURN_INNER(tmp, lhs, expr) \
  auto tmp = (expr);                              \
  if (!tmp.ok()) {                                \
    return tmp.status();                          \
  }                                               \
  lhs = std::move(tmp).value()

#endif  // EVERWARM_BASE_STATUS_MACROS_H_
